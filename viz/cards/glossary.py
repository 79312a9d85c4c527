"""Glossary of the page: terms with their explanations, beside the term and as a list."""

from dataclasses import dataclass

from markupsafe import Markup

from viz.drawing.markup import render

PAPER = "https://arxiv.org/abs/2407.01100"


@dataclass(frozen=True)
class Term:
    """Term with its explanation in one or two sentences."""

    name: str
    meaning: str

    @property
    def anchor(self) -> str:
        """Id of the explanation in the page."""
        return f"term-{self.name.replace(' ', '-').replace('-', '_')}"


_TERMS = (
    Term("token", "A piece of text as the model reads it: a short word, a part of a long one, a sign."),
    Term(
        "segment",
        "A part of the prompt: the prefix (SYS, the instruction), one of the documents, or the suffix (the "
        "question, and after it the answer as it is written).",
    ),
    Term(
        "query",
        "The token that is looking. In every layer each token reads others; as the reader it is the query.",
    ),
    Term("key", "A token that is looked at. Which keys a query may read, the mask says."),
    Term(
        "mask",
        "Who may read whom. The usual causal mask lets a token read only what stands before it, so the first "
        "document never sees the last.",
    ),
    Term(
        "position",
        "A whole number that tells the model how far apart two tokens are. The model turns each query and "
        "key by its position (RoPE), and near ones often weigh more. Usually it is the place in the input.",
    ),
    Term(
        "layer",
        "One of the steps, one after the other, in which the model works over all tokens.",
    ),
    Term(
        "head",
        "One of several readers side by side in a layer, each with its own idea of what matters. PINE orders "
        "the documents for each head anew.",
    ),
    Term(
        "attention",
        "How much of what a query takes in comes from each key, in shares that add up to 1. It is no full "
        "explanation of the answer.",
    ),
    Term(
        "importance",
        "How much attention a query would pay to a document, per token of the document, if positions did not "
        "exist. PINE places the important documents close.",
    ),
    Term(
        "attention sink",
        "Much attention often goes to the first tokens, whatever they say. Leave it out to see the rest.",
    ),
    Term("logit", "The score the model gives to a possible next token, before scores become probabilities."),
    Term(
        "log-probability",
        "The logarithm of a probability, in nats: 0 is certain, -0.7 is one half, -2.3 is one tenth. Those "
        "of the tokens of an answer add up to that of the answer.",
    ),
    Term(
        "order-invariant",
        "The same answer in whatever order the documents are given. Here it means equal to the last bit.",
    ),
    Term(
        "slot",
        "A place in the input. A document keeps its letter when it moves to another slot.",
    ),
)

TERMS = {term.name: term for term in _TERMS}


def term(name: str, text: str = "") -> Markup:
    """Render a term, or `text` in its place, as a button that shows its explanation."""
    return Markup(render("term.html", term=TERMS[name], text=text or name))


def glossary_html() -> str:
    """Render all terms with their explanations as a list."""
    return render("glossary.html", terms=_TERMS, paper=PAPER)


def explanations_html() -> str:
    """Render the explanations, hidden until `term` shows them; nothing around them may be hidden."""
    return render("explanations.html", terms=_TERMS)
