package metrics

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Bounds on the requests that ask the management cluster to review their token. Each token is reviewed once a
// minute, but any client of the port can invent any number of tokens.
const (
	reviewsPerSecond = 5
	reviewsAtOnce    = 20
)

// authorized accepts clients that may get /metrics, and bounds the TokenReviews that others cause. A request without
// credentials causes no TokenReview.
func authorized(config *rest.Config, client *http.Client) (server.Filter, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(config, client)
	if err != nil {
		return nil, err
	}
	return limited(filter, flowcontrol.NewTokenBucketPassiveRateLimiter(reviewsPerSecond, reviewsAtOnce)), nil
}

func limited(filter server.Filter, reviews flowcontrol.PassiveRateLimiter) server.Filter {
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		filtered, err := filter(log, handler)
		if err != nil {
			return nil, err
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" && !reviews.TryAccept() {
				http.Error(w, "too many requests with credentials: try again in a second", http.StatusTooManyRequests)
				return
			}
			filtered.ServeHTTP(w, r)
		}), nil
	}
}
