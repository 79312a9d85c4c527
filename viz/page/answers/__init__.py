"""The main job: the form, and the answers of all methods beside it, as they are run, shown and recorded."""
