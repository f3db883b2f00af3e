// Package hostile plays attacks against the hub: members that lie, flood, stall and echo, and tenants that write what
// their rights allow. The hub is two processes, watched for memory and processor time. Two honest members beside the
// hostile one must not notice.
//
// They are for
//
//	make hostile
//
// which writes out/hostile.json.
package hostile
