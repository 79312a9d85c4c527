"""Documents of retrieval libraries, and the scripts in examples/, with the real packages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = ("langchain-core==1.8.3", "llama-index-core==0.14.25", "haystack-ai==3.4.1")
# The packages come last, so that those of the tests are found first.
RUN = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_path(sys.argv[2])"

DOCUMENTS = """
from haystack import Document as HaystackDocument
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.schema import NodeWithScore, TextNode
from pine_engine.prompts.prompt import as_documents

facts = {"source": "a.md"}
for document, score in [
    (LangChainDocument(page_content="red", metadata=facts), {}),
    (TextNode(text="red", metadata=facts), {}),
    (NodeWithScore(node=TextNode(text="red", metadata=facts), score=0.5), {"score": 0.5}),
    (HaystackDocument(content="red", meta=facts, score=0.5), {"score": 0.5}),
]:
    for found in as_documents(document), as_documents([document]):
        assert [(one.text, one.metadata) for one in found] == [("red", facts | score)], document
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--target", folder, *PACKAGES], check=True, capture_output=True)
    return folder


def printed_by(script: Path, packages: Path) -> str:
    done = subprocess.run([sys.executable, "-c", RUN, packages, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_documents_of_each_library_are_accepted(packages: Path, tmp_path: Path) -> None:
    script = tmp_path / "documents.py"
    script.write_text(DOCUMENTS, encoding="utf-8")
    printed_by(script, packages)


@pytest.mark.embedded
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_order_of_the_retriever_changes_vanilla_alone(
    name: str, packages: Path, embedded_folder: Path
) -> None:
    printed = printed_by(EXAMPLES / name, packages)
    answers = dict(re.findall(r"^(vanilla|pine): {(.+)}$", printed, re.MULTILINE))
    assert answers["pine"].count("': ") == 1 < answers["vanilla"].count("': ")
    assert printed.count("buildings.md") == 3
