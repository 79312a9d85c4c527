"""Documents of retrieval libraries, and the scripts in examples/, each with the real package alone."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import write
from tests.support.environments import run_apart

EXAMPLES = Path(__file__).parents[2] / "examples"
LANGCHAIN, LLAMA_INDEX = "langchain-core==1.8.3", "llama-index-core==0.14.25"
READERS = {"langchain_reader.py": LANGCHAIN, "llama_index_reader.py": LLAMA_INDEX}

DOCUMENTS = {
    LANGCHAIN: """
from langchain_core.documents import Document
objects = [(Document(page_content="red", metadata=facts), {})]
""",
    LLAMA_INDEX: """
from llama_index.core.schema import NodeWithScore, TextNode
node = TextNode(text="red", metadata=facts)
objects = [(node, {}), (NodeWithScore(node=node, score=0.5), {"score": 0.5})]
""",
    "haystack-ai==3.4.1": """
from haystack import Document
objects = [(Document(content="red", meta=facts, score=0.5), {"score": 0.5})]
""",
}
CHECK = """
from pine_engine.rows.documents import as_documents
for document, score in objects:
    for found in as_documents(document), as_documents([document]):
        assert [(one.text, one.metadata) for one in found] == [("red", facts | score)], document
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("package", DOCUMENTS)
def test_documents_of_each_library_are_accepted(
    package: str, published: Callable[..., Path], tmp_path: Path
) -> None:
    script = write(tmp_path / "documents.py", f"facts = {{'source': 'a.md'}}\n{DOCUMENTS[package]}{CHECK}")
    run_apart(published(package), tmp_path, script)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_order_of_the_retriever_changes_vanilla_alone(
    path: Path, published: Callable[..., Path], embedded_folder: Path, tmp_path: Path
) -> None:
    printed = run_apart(published(READERS[path.name]), tmp_path, path)
    answers = dict(re.findall(r"^(vanilla|pine): {(.+)}$", printed, re.MULTILINE))
    assert answers["pine"].count("': ") == 1 < answers["vanilla"].count("': ")
    assert printed.count("buildings.md") == 3
