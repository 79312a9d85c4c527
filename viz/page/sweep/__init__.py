"""One document in every slot: where the answer stands."""
