"""Read-only page: users run the built-in examples and cannot enter texts."""

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.evaluation.examples import Example
from viz.page.files.data_sets import OWN, built_in_choices, read_built_in
from viz.page.form.examples import is_from_example, load_examples
from viz.page.form.form import Form
from viz.page.gradio_patches.blocks import GuardedBlocks

NOTE = "Demo mode: only the built-in examples can be run. Install PINE Explorer to use your own documents."

REFUSAL = f"{NOTE} Select an example and do not edit it."

NO_FILES = f"{NOTE} File uploads are disabled."

HIDDEN = {"add-files", "paste-panel", "open-session", "measure-upload"}
"""Element ids of widgets for entering text."""


def check_shipped(form: Form) -> None:
    """Raise InputError for anything except documents of one example, in any order and number."""
    if not any(is_from_example(form, example) for example in load_examples()):
        raise InputError(REFUSAL)


def check_reference(answer: str, form: Form) -> None:
    """Raise InputError for a target answer that is not an answer of the example."""
    shipped = (example for example in load_examples() if is_from_example(form, example))
    if answer and not any(answer in example.answers for example in shipped):
        raise InputError(REFUSAL)


def check_rows_shipped(rows: tuple[Example, ...]) -> None:
    """Raise InputError for examples that are not of a built-in dataset."""
    names = {name for _, name in built_in_choices()}
    shipped = {row.id: row for name in names for row in read_built_in(name).examples}
    if any(shipped.get(row.id) != row for row in rows):
        raise InputError(f"{NOTE} Select a built-in dataset.")


def freeze(page: GuardedBlocks) -> None:
    """Disable fields and uploads of a page that was built, and hide widgets for entering text."""
    page.no_files = NO_FILES
    for block in page.blocks.values():
        name = getattr(block, "elem_id", None)
        if isinstance(block, gr.Textbox) or (isinstance(block, gr.Dropdown) and name == "task"):
            block.interactive = False
        if isinstance(block, gr.HTML) and name == "documents":
            block.props["locked"] = True
        if name in HIDDEN:
            block.visible = False
        if isinstance(block, gr.Dropdown) and name == "measure-rows":
            block.choices = [choice for choice in block.choices if choice[1] != OWN]
