# klamm in a container. Two images come out of this file:
#
#   docker build -t klamm .     the tools and the broker, without Java
#   make image                  that, and klamm-all-in-one: a Java and ZooKeeper's jars too, for `klamm local up`
#
# `make image` needs no daemon, and makes a Debian of its own to stand on.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE /src/
COPY klamm /src/klamm
COPY cli /src/cli
COPY tui /src/tui
COPY engine /src/engine
COPY plans /src/plans
# A file of certificates for pip, where the way to the registry needs one.
ARG PIP_CERT
RUN python3 -m venv /opt/klamm \
    && /opt/klamm/bin/pip install --quiet --no-compile -c /src/constraints.txt '/src[plan]' \
    && /opt/klamm/bin/pip uninstall --quiet --yes pip setuptools

FROM ${BASE} AS base
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --create-home klamm
COPY --from=build /opt/klamm /opt/klamm
ENV PATH=/opt/klamm/bin:$PATH LANG=C.UTF-8
USER klamm
WORKDIR /home/klamm
ENTRYPOINT ["klamm"]

FROM base AS all-in-one
USER root
RUN apt-get update -qq \
    && mkdir -p /usr/share/man/man1 \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY build/image/zookeeper-jars /opt/zookeeper-jars
ENV KLAMM_ZOOKEEPER_JARS=/opt/zookeeper-jars
USER klamm
# Clients outside the container reach the broker through the published port.
CMD ["local", "up", "--config", "listeners=PLAINTEXT://0.0.0.0:9092", "--config", "advertised.listeners=PLAINTEXT://localhost:9092"]

FROM base AS klamm
CMD ["--help"]
