"""Recordings of SubscribeToShard responses, and their replay."""
