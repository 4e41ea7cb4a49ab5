#!/usr/bin/env bash
# main.sh NODE: process 1 of a node. It keeps containerd, the kubelet and kube-proxy running; they log to /var/log/node.
logs=/var/log/node
for setting in net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.ipv4.conf.all.rp_filter=0; do
  sysctl -qw "$setting" 2> /dev/null # not every kernel has all of them
done

keep() {
  local name=$1
  shift
  while :; do
    "$@" >> "$logs/$name.log" 2>&1
    echo "$name ended with $?; it is started again" >> "$logs/$name.log"
    sleep 1
  done &
}

keep containerd containerd -c /etc/containerd/config.toml
until ctr version > /dev/null 2>&1; do sleep 0.1; done
# Without an API server the kubelet waits longer and longer before it tries again.
until [ -e /node/api-is-ready ]; do sleep 0.1; done
keep kubelet kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.kubeconfig \
  --hostname-override="$1" --node-ip="$(< /node/address)" --root-dir=/var/lib/kubelet --cert-dir=/var/lib/kubelet/pki
keep kube-proxy kube-proxy --config=/etc/kubernetes/proxy.yaml
# Orphans of all Pods become children of process 1.
while :; do wait -n; sleep 0.2; done
