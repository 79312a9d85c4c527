"""The documents editor: cards with a letter that travels with the document when it is moved.

The cards are a fixed pool of widgets, shown as needed: typed text lives in the browser and is only
written by the server where an operation changes it, so it is never lost and never moves to a neighbour.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic_ns
from typing import Any

import gradio as gr
from markupsafe import Markup

from pine_engine.errors import PineError
from pine_engine.prompts.tasks import Nouns, get_task
from viz.drawing.identity import badge, document_letter
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.event_options import STATE_EVENT
from viz.page.files.file_button import build_files_button, limits_html
from viz.page.form.words import capital

MOST_PASTED = 500_000
"""Characters of a text that is taken apart into documents: as many as can be read of all together."""

DOCUMENTS = Nouns()
"""What documents are called where nothing else is said."""

# A rule on a line of its own, or at least one blank line, stands between pasted documents.
_RULE = re.compile(r"^[ \t]*-{3,}[ \t]*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True)
class Entry:
    """One document in the editor."""

    identity: int
    """Its letter (0 is A), which it keeps when it is moved."""

    title: str = ""
    text: str = ""


Entries = tuple[Entry, ...]
Operation = Callable[[Entries], Entries]


def entries_from(documents: Sequence[tuple[str, str]]) -> Entries:
    """Entries for (title, text) pairs, lettered in this order."""
    return tuple(Entry(identity, title, text) for identity, (title, text) in enumerate(documents))


def add(entries: Entries, most: int = MAX_DOCUMENTS) -> Entries:
    """The entries with an empty one at the end; unchanged if there are as many as there may be."""
    if len(entries) >= most:
        return entries
    return (*entries, Entry(len(entries)))


def remove(entries: Entries, slot: int) -> Entries:
    """The entries without the one in that slot.

    Later letters close the gap, so that the letters on the cards are always those in the prompt.
    """
    if slot >= len(entries):
        return entries
    gone = entries[slot].identity
    kept = entries[:slot] + entries[slot + 1 :]
    return tuple(
        replace(entry, identity=entry.identity - 1) if entry.identity > gone else entry for entry in kept
    )


@dataclass(frozen=True)
class Removed:
    """What was taken away: the entries before, and the slot of the one that is gone, None for all."""

    before: Entries
    slot: int | None


def restore(entries: Entries, removed: Removed, most: int = MAX_DOCUMENTS) -> Entries:
    """The entries with what was removed where it was; what was written since stays, behind or around it.

    Unchanged if there is no room.
    """
    if removed.slot is None:
        count = len(removed.before)
        since = without_empty(entries)
        after = (*removed.before, *(replace(entry, identity=entry.identity + count) for entry in since))
    else:
        gone, slot = removed.before[removed.slot], removed.slot
        letter = min(gone.identity, len(entries))
        shifted = tuple(
            replace(entry, identity=entry.identity + 1) if entry.identity >= letter else entry
            for entry in entries
        )
        after = (*shifted[:slot], replace(gone, identity=letter), *shifted[slot:])
    return after if len(after) <= most else entries


def move(entries: Entries, slot: int, step: int) -> Entries:
    """The entries with the one in that slot swapped with its neighbour `step` (-1 or 1) away."""
    other = slot + step
    if not (0 <= slot < len(entries) and 0 <= other < len(entries)):
        return entries
    moved = list(entries)
    moved[slot], moved[other] = moved[other], moved[slot]
    return tuple(moved)


def split_pasted(text: str) -> list[tuple[str, str]]:
    """(title, text) of each document in a pasted text.

    Documents are separated by lines of --- if there are any, by blank lines otherwise. A first line
    that starts with # is the title.
    """
    text = text.replace("\r\n", "\n")
    separator = _RULE if _RULE.search(text) else _BLANK_LINES
    documents = []
    for part in filter(None, (part.strip() for part in separator.split(text))):
        first, _, rest = part.partition("\n")
        if first.startswith("#") and rest.strip():
            documents.append((first.lstrip("# ").strip(), rest.strip()))
        else:
            documents.append(("", part))
    return documents


def without_empty(entries: Entries) -> Entries:
    """The entries that have a title or a text."""
    for slot in reversed(range(len(entries))):
        if not (entries[slot].title.strip() or entries[slot].text.strip()):
            entries = remove(entries, slot)
    return entries


def paste(entries: Entries, text: str, most: int = MAX_DOCUMENTS) -> tuple[Entries, str]:
    """The entries with the pasted documents in place of empty cards and after the filled ones.

    Also returns a sentence that says what was added, and what was left out for want of room.
    """
    if len(text) > MOST_PASTED:
        return entries, (
            f"The text has {len(text):,} characters, and {MOST_PASTED:,} can be taken apart here; paste a "
            "part of it."
        )
    documents = split_pasted(text)
    if not documents:
        return entries, "There is nothing to add; paste some text first."
    entries = without_empty(entries)
    room = max(0, most - len(entries))
    first = len(entries)
    added = [Entry(first + index, title, body) for index, (title, body) in enumerate(documents[:room])]
    sentence = f"Added {len(added)} document{'s' if len(added) != 1 else ''}."
    if len(documents) > room:
        sentence += f" {len(documents) - room} did not fit: the page holds {most}."
    return entries + tuple(added), sentence


@dataclass(frozen=True)
class Card:
    """The widgets of one slot."""

    group: gr.Column
    header: gr.HTML
    count: gr.HTML
    title: gr.Textbox
    text: gr.Textbox
    up: gr.Button
    down: gr.Button
    remove: gr.Button


@dataclass(frozen=True)
class Editor:
    """The widgets of the editor. most: documents that it takes.

    identities: state, the identity of the document in each shown slot. written: state, another number each
    time the server has written into a card. removed: state, what Undo brings back, or None. opened: state,
    whether this server has opened the page.
    """

    identities: gr.State
    written: gr.State
    opened: gr.State
    removed: gr.State
    cards: tuple[Card, ...]
    add: gr.Button
    files: gr.UploadButton
    clear: gr.Button
    undo: gr.Button
    pasted: gr.Textbox
    paste: gr.Button
    message: gr.HTML
    most: int

    @property
    def inputs(self) -> list[Any]:
        """What `read` needs: the identities, all titles, all texts, and whether the page was opened here."""
        titles, texts = ([card.title for card in self.cards], [card.text for card in self.cards])
        return [self.identities, *titles, *texts, self.opened]

    @property
    def outputs(self) -> list[Any]:
        """What `write` and `rename` may update."""
        widgets: list[Any] = [self.identities, self.written, self.removed, self.pasted, self.message]
        widgets += [self.add, self.undo]
        for card in self.cards:
            widgets += [card.group, card.header, card.title, card.text]
        return widgets


def read(identities: Sequence[int], *values: Any) -> Entries:
    """The entries of the shown cards, from the values of `Editor.inputs`.

    Raises PineError if the server has not opened this page: how many cards it shows is not known then.
    """
    titles, texts = values[:MAX_DOCUMENTS], values[MAX_DOCUMENTS : 2 * MAX_DOCUMENTS]
    if False in values[2 * MAX_DOCUMENTS :]:
        raise PineError(
            "The server does not know this page any more: it was started anew, or the page was away for "
            "long. Reload the page; what you typed is kept as a draft in this browser."
        )
    return tuple(
        Entry(identity, titles[slot] or "", texts[slot] or "") for slot, identity in enumerate(identities)
    )


def write(editor: Editor, before: Entries, after: Entries, nouns: Nouns = DOCUMENTS) -> dict[Any, Any]:
    """Updates that turn one content into another; cards that stay the same are not touched."""
    updates: dict[Any, Any] = {
        editor.identities: tuple(entry.identity for entry in after),
        editor.written: monotonic_ns(),
    }
    for slot, card in enumerate(editor.cards):
        old = before[slot] if slot < len(before) else None
        new = after[slot] if slot < len(after) else None
        if (old is None) != (new is None):
            updates[card.group] = gr.update(visible=new is not None)
        if new != old:
            updates[card.header] = header_html(new.identity, slot, nouns) if new else ""
        shown, wanted = old or Entry(0), new or Entry(0)
        if shown.title != wanted.title:
            updates[card.title] = wanted.title
        if shown.text != wanted.text:
            updates[card.text] = wanted.text
    return updates


def nothing_removed(editor: Editor) -> dict[Any, Any]:
    """Updates after which there is nothing to undo."""
    return {editor.removed: None, editor.undo: gr.update(interactive=False)}


def rename(editor: Editor, entries: Entries, nouns: Nouns) -> dict[Any, dict[str, Any]]:
    """For each widget, its properties where documents are called so; nothing that was typed is among them."""
    words: dict[Any, dict[str, Any]] = {
        editor.add: {"value": add_label(nouns)},
        editor.pasted: {"label": pasted_label(nouns)},
    }
    for slot, card in enumerate(editor.cards):
        words[card.title] = title_words(slot, nouns)
        words[card.text] = text_words(slot, nouns)
    for slot, entry in enumerate(entries):
        words[editor.cards[slot].header] = {"value": header_html(entry.identity, slot, nouns)}
    return words


def add_label(nouns: Nouns) -> str:
    """What is written on the button that adds a document."""
    return f"Add {nouns.a_document}"


def pasted_label(nouns: Nouns) -> str:
    """Label of the field for many documents."""
    return f"Several {nouns.documents}"


def title_words(slot: int, nouns: Nouns) -> dict[str, Any]:
    """Properties of the field for the title of the document in a slot; hidden where documents have none."""
    title = capital(nouns.title or "title")
    return {
        "label": f"{title} of the {nouns.document} in slot {slot + 1}",
        "placeholder": f"{title} (may be empty)",
        "visible": bool(nouns.title),
    }


def text_words(slot: int, nouns: Nouns) -> dict[str, Any]:
    """Properties of the field for the text of the document in a slot."""
    return {
        "label": f"Text of the {nouns.document} in slot {slot + 1}",
        "placeholder": f"Text of the {nouns.document}",
    }


def header_html(identity: int, slot: int, nouns: Nouns = DOCUMENTS) -> str:
    """HTML of a card's head: the document's badge, the slot it is in, and whose it is."""
    name = capital(nouns.named(document_letter(identity))) if nouns.owner else ""
    owner = Markup('<span class="page-card-name">{}</span>').format(name) if name else ""
    return str(Markup('<div class="page-card-head">{}{}</div>').format(badge(identity, slot), owner))


def build_editor(entries: Entries, nouns: Nouns = DOCUMENTS, most: int = MAX_DOCUMENTS) -> Editor:
    """Makes the widgets, filled with the given entries; nouns: what documents are called.

    most: documents that the host allows.
    """
    with gr.Column(elem_id="documents", elem_classes="page-documents"):
        cards = tuple(
            _build_card(slot, entries[slot] if slot < len(entries) else None, nouns)
            for slot in range(MAX_DOCUMENTS)
        )
    with gr.Row(elem_classes="page-row"):
        add_button = gr.Button(add_label(nouns), size="sm", min_width=90, elem_id="add-document")
        files = build_files_button()
        clear_button = gr.Button("Clear all", size="sm", min_width=90, elem_id="clear-documents")
        undo = gr.Button("Undo", size="sm", min_width=90, elem_id="undo-documents", interactive=False)
    gr.HTML(limits_html(most), elem_classes="page-limits")
    with gr.Accordion("Paste many at once", open=False, elem_id="paste-panel"):
        pasted = gr.Textbox(
            label=pasted_label(nouns),
            info="Put a blank line or a line of --- between two documents. A first line with # is a title.",
            placeholder="# Tides\nThe Moon pulls the sea ...\n---\n# Wind\nAir moves from high to low ...",
            lines=5,
            max_lines=12,
            elem_id="pasted",
        )
        paste_button = gr.Button("Add these documents", size="sm", elem_id="paste-documents")
    message = gr.HTML("", elem_id="documents-message", elem_classes="page-message")
    return Editor(
        identities=gr.State(tuple(entry.identity for entry in entries)),
        written=gr.State(0),
        opened=gr.State(False),
        removed=gr.State(None),
        cards=cards,
        add=add_button,
        files=files,
        clear=clear_button,
        undo=undo,
        pasted=pasted,
        paste=paste_button,
        message=message,
        most=most,
    )


def _build_card(slot: int, entry: Entry | None, nouns: Nouns) -> Card:
    shown = entry or Entry(0)
    with gr.Column(
        visible=entry is not None, elem_classes=["page-card", f"page-card-{slot + 1}"], min_width=0
    ) as group:
        with gr.Row(elem_classes="page-card-bar"):
            header = gr.HTML(header_html(shown.identity, slot, nouns) if entry else "", min_width=0)
            title = gr.Textbox(
                shown.title,
                show_label=False,
                max_lines=1,
                container=False,
                interactive=True,
                min_width=0,
                elem_classes="page-title",
                **title_words(slot, nouns),
            )
            count = gr.HTML("", min_width=0, elem_classes="page-count")
            up = gr.Button("Up", size="sm", min_width=0, elem_classes="page-tool", elem_id=f"up-{slot + 1}")
            down = gr.Button(
                "Down", size="sm", min_width=0, elem_classes="page-tool", elem_id=f"down-{slot + 1}"
            )
            remove_button = gr.Button(
                "Remove", size="sm", min_width=0, elem_classes="page-tool", elem_id=f"remove-{slot + 1}"
            )
        text = gr.Textbox(
            shown.text,
            show_label=False,
            lines=2,
            max_lines=8,
            container=False,
            interactive=True,
            elem_classes="page-text",
            **text_words(slot, nouns),
        )
    return Card(group, header, count, title, text, up, down, remove_button)


def wire_editor(editor: Editor, task: gr.Dropdown) -> Any:
    """Connects the editor's buttons as one event, which is returned so that others can follow it.

    task: says what documents are called.

    One event for all of them: a click that comes before the last one is answered is dropped, never
    applied to what was there before.
    """
    operations: dict[gr.Button, Operation] = {
        editor.add: partial(add, most=editor.most),
        editor.clear: lambda entries: (Entry(0), Entry(1)),
    }
    for slot, card in enumerate(editor.cards):
        operations[card.up] = partial(move, slot=slot, step=-1)
        operations[card.down] = partial(move, slot=slot, step=1)
        operations[card.remove] = partial(remove, slot=slot)
    emptied_slot = {editor.clear.elem_id: None} | {
        card.remove.elem_id: slot for slot, card in enumerate(editor.cards)
    }

    # A button that a visitor has seen change is another object in what gradio hands out.
    by_name = {button.elem_id: operation for button, operation in operations.items()}

    def edit(
        pressed: gr.EventData, task: str, pasted: str | None, removed: Removed | None, *values: Any
    ) -> dict[Any, Any]:
        before, nouns = read(*values), get_task(task).nouns
        name = getattr(pressed.target, "elem_id", None)
        if name == editor.paste.elem_id:
            after, sentence = paste(before, pasted or "", editor.most)
            emptied = {editor.pasted: ""} if after != before else {}
            return write(editor, before, after, nouns) | {editor.message: sentence} | emptied
        if name == editor.undo.elem_id:
            after = restore(before, removed, editor.most) if removed else before
            if after == before:
                return {editor.message: f"There is no room: the page holds {editor.most}."}
            return write(editor, before, after, nouns) | {editor.message: ""} | nothing_removed(editor)
        if name not in by_name:  # called by something else than a button
            return {editor.message: ""}
        after = by_name[name](before)
        updates = write(editor, before, after, nouns) | {editor.message: ""}
        if name in emptied_slot and after != before:
            updates[editor.removed] = Removed(before, emptied_slot[name])
            updates[editor.undo] = gr.update(interactive=True)
        return updates

    return gr.on(
        [button.click for button in (*operations, editor.undo, editor.paste)],
        edit,
        [task, editor.pasted, editor.removed, *editor.inputs],
        editor.outputs,
        trigger_mode="once",
        **STATE_EVENT,
    )
