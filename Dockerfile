# The hub as an image: docker build -t $IMAGE . (config/default says where to name it)
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY hub hub
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w" -o /leasecast-hub ./cmd/leasecast-hub

# A static base: no shell, but the CA certificates that a member's kubeconfig may rely on.
FROM gcr.io/distroless/static:nonroot
COPY --from=build /leasecast-hub /leasecast-hub
USER 65532:65532
ENTRYPOINT ["/leasecast-hub"]
