"""What an application gives a consumer to process records with, and what becomes of its failures."""
