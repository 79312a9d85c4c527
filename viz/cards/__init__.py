"""Boxes and words as HTML: answers, certificates, the lesson, the glossary."""
