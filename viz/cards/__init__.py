"""Boxes and words as HTML: answers, shuffles, the tutorial, the glossary."""
