"""What several theory modules share."""
