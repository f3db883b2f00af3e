// Package member holds what the hub may do in a member, as config/member installs it.
package member

import _ "embed" // for the files

// HubRole is the ClusterRole of the hub in a member, in YAML.
//
//go:embed hub_role.yaml
var HubRole []byte

// FlowSchema is the priority of the requests that terms depend on, in YAML.
//
//go:embed flow_schema.yaml
var FlowSchema []byte
