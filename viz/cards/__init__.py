"""Boxes and words as HTML: answers, certificates, the tutorial, the glossary."""
