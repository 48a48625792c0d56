"""What LePlanner is compared with: floors, a ceiling, search, and learned policies."""
