"""What proves a recording on the batch itself: places, order, sums, the last layer."""
