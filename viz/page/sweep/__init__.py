"""Position sweep: one document in every slot."""
