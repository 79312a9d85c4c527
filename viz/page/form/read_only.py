"""Read-only pages: users run the built-in examples, and cannot enter texts."""

from pine_engine.errors import InputError
from viz.page.form.examples import is_from_example, load_examples
from viz.page.form.form import Form

NOTE = "Demo mode: only the built-in examples can be run. Install PINE Explorer to use your own documents."

REFUSAL = f"{NOTE} Select an example and do not edit it."
NO_TEMPLATE_KWARGS = f"{NOTE} Remove the chat template arguments."
NO_FILES = f"{NOTE} File uploads are disabled."


def check_shipped(form: Form) -> None:
    """Raise InputError for anything except documents of one example, in any order and number."""
    if not any(is_from_example(form, example) for example in load_examples()):
        raise InputError(REFUSAL)


def check_reference(answer: str, form: Form) -> None:
    """Raise InputError for a target answer that is not an answer of the example."""
    shipped = (example for example in load_examples() if is_from_example(form, example))
    if answer and not any(answer in example.answers for example in shipped):
        raise InputError(REFUSAL)
