"""Migration: applications of other libraries whose checkpoints efo takes over, and gives back."""
