# The image of a release, which adds the binary that it has built for the platform. There is no shell
# in it: "run" can run only what a volume or another stage brings.
FROM scratch
ARG TARGETPLATFORM
COPY .cache/release/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY $TARGETPLATFORM/pgadvisory /usr/bin/pgadvisory
USER 65534:65534
ENTRYPOINT ["/usr/bin/pgadvisory"]
