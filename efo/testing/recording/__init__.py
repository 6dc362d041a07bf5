"""Recordings of subscriptions, and their replay."""
