//! Tests of virt-api as a server of its own: a real kube-apiserver calls its webhooks and aggregates its API, with the
//! objects of an installation and the rights that they grant.
