# The hub as an image, for those who have a registry to pull the builder from: docker build -t $IMAGE . Without one: make image.
# leasecast-gate is in it too, for images of others: COPY --from=$IMAGE /leasecast-gate /
# For several architectures: docker buildx build --platform linux/amd64,linux/arm64 -t $IMAGE --push .
# To pin the builder: --build-arg GO_IMAGE=golang@sha256:... ; the image itself has no base.
ARG GO_IMAGE=golang:1.26.8
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
COPY member/go.mod member/go.sum member/
RUN go mod download
COPY api api
COPY cmd cmd
COPY config/member config/member
COPY hub hub
COPY member member
ARG TARGETOS TARGETARCH
ARG VERSION=devel
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /programs/ ./cmd/...

FROM scratch
# For kubeconfigs of members that name no authority.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /programs/ /
USER 65532:65532
ENTRYPOINT ["/leasecast-hub"]
