"""Evidence about the clients of a round → reputation that lasts → weights."""
