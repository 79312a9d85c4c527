"""Tab "Tutorial": eight steps from the bias of the order to its proof of absence."""
