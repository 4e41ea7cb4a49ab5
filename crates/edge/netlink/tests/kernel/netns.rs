//! The crate against the real kernel, each test in a network namespace of its own.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]
use std::process::Command;

use ipnet::IpNet;
use netlink::blocking::Links;
use netplan::nft::{Base, Chain, Family, Hook, Match, Protocol, Rule, Table, Verdict};
use netplan::{Link, LinkKind, LinkName, MacAddr, NetPlan, Route, Sysctl, TapOptions};
use rustix::thread::UnshareFlags;

/// Runs `test` on a thread in a fresh network namespace, which goes away with the thread.
fn in_new_netns(test: impl FnOnce() + Send + 'static) {
    let outcome = std::thread::spawn(move || {
        // SAFETY: only the network namespace of this thread changes; no file descriptors or memory are unshared.
        match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
            Ok(()) => test(),
            Err(err) => test_support::skip(&format!("cannot make a network namespace ({err}); run as root")),
        }
    });
    outcome.join().expect("the test thread failed");
}

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn tap(queues: u16) -> TapOptions {
    TapOptions { owner: 107, group: 107, queues }
}

#[test]
fn a_fresh_namespace_has_only_loopback() {
    in_new_netns(|| {
        let links = Links::new().unwrap().list().unwrap();
        let names: Vec<&str> = links.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["lo"]);
        assert!(!links[0].up);
    });
}

#[test]
fn links_are_made_once_and_found_again() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        for _ in 0..2 {
            links.create_bridge("br0").unwrap();
            links.create_bridge("br1").unwrap();
            links.create_veth("v0", "v1", None).unwrap();
            links.set_master("v0", Some("br0")).unwrap();
            links.set_mac("br0", "02:00:00:00:00:00".parse().unwrap()).unwrap();
            links.set_mtu("br1", 1400).unwrap();
            links.set_up("br0").unwrap();
        }
        let bridge = links.get("br0").unwrap().unwrap();
        assert_eq!(bridge.kind.as_deref(), Some("bridge"));
        assert_eq!(bridge.mac, Some(MacAddr([2, 0, 0, 0, 0, 0])));
        assert!(bridge.up);
        assert_eq!(links.get("v0").unwrap().unwrap().master, Some(bridge.index));
        assert_eq!(links.get("br1").unwrap().unwrap().mtu, 1400);
        assert_eq!(links.get("v1").unwrap().unwrap().kind.as_deref(), Some("veth"));
        assert_eq!(links.get("nothing").unwrap(), None);

        links.set_master("v0", None).unwrap();
        assert_eq!(links.get("v0").unwrap().unwrap().master, None);
        links.set_down("br0").unwrap();
        assert!(!links.get("br0").unwrap().unwrap().up);
    });
}

#[test]
fn a_link_of_another_kind_is_an_error_that_names_both_kinds() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        links.create_veth("x0", "x1", None).unwrap();
        assert_eq!(links.create_bridge("x0").unwrap_err().to_string(), "link x0 exists, but it is veth and not bridge");
        assert_eq!(
            links.create_tap("x0", &tap(1)).unwrap_err().to_string(),
            "link x0 exists, but it is no tap device and not a single-queue tap device of user 107 and group 107"
        );
    });
}

#[test]
fn deleting_and_renaming_can_be_repeated() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        links.create_bridge("old").unwrap();
        links.rename("old", "new").unwrap();
        links.rename("old", "new").unwrap();
        assert!(links.get("new").unwrap().is_some());
        links.delete("new").unwrap();
        links.delete("new").unwrap();
        assert_eq!(links.get("new").unwrap(), None);
        assert_eq!(links.rename("old", "new").unwrap_err().to_string(), "there is no link old");
    });
}

#[test]
fn the_peer_of_a_veth_pair_can_be_made_in_another_namespace() {
    in_new_netns(|| {
        let here = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        in_new_netns(move || {
            use std::os::fd::AsFd;
            let mut links = Links::new().unwrap();
            links.create_veth("eth0", "pod1", Some(here.as_fd())).unwrap();
            links.create_veth("eth0", "pod1", Some(here.as_fd())).unwrap();
            assert!(links.get("eth0").unwrap().is_some());
            assert_eq!(links.get("pod1").unwrap(), None);
            rustix::thread::move_into_link_name_space(here.as_fd(), None).unwrap();
            assert!(Links::new().unwrap().get("pod1").unwrap().is_some());
            // `links` was opened in the other namespace and still looks there.
            assert_eq!(links.get("pod1").unwrap(), None);
        });
    });
}

#[test]
fn taps_belong_to_their_user_and_differ_by_queues() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        links.create_tap("tap0", &tap(1)).unwrap();
        links.create_tap("tap0", &tap(1)).unwrap();
        links.create_tap("tap1", &tap(4)).unwrap();
        links.create_tap("tap1", &tap(4)).unwrap();
        let shown = |name: &str| output("ip", &["-d", "link", "show", name]);
        let single = shown("tap0");
        assert!(single.contains("vnet_hdr on persist on user 107 group 107"), "{single}");
        assert!(!single.contains("multi_queue"), "{single}");
        let multi = shown("tap1");
        assert!(multi.contains("multi_queue"), "{multi}");

        let err = links.create_tap("tap0", &tap(2)).unwrap_err().to_string();
        assert!(err.contains("is a single-queue tap device of user 107 and group 107 and not a multi-queue"), "{err}");
        let long = links.create_tap("a-name-that-is-too-long", &tap(1));
        assert!(long.is_err());
    });
}

#[test]
fn addresses_become_exactly_those_asked_for() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        links.create_veth("d0", "d1", None).unwrap();
        links.set_up("d0").unwrap();
        links.set_up("d1").unwrap();
        links.add_address("d0", net("10.0.2.1/24")).unwrap();
        links.add_address("d0", net("10.0.2.1/24")).unwrap();
        links.add_address("d0", net("10.0.2.9/24")).unwrap();
        let wanted = [net("10.0.2.7/24"), net("fd10:0:2::1/120")];
        links.replace_addresses("d0", &wanted).unwrap();
        links.replace_addresses("d0", &wanted).unwrap();
        let found = links.get("d0").unwrap().unwrap().addresses;
        let link_local: IpNet = net("fe80::/10");
        let global: Vec<IpNet> = found.iter().filter(|a| !link_local.contains(*a)).copied().collect();
        assert_eq!(global, wanted);
        assert!(global.len() < found.len(), "the kernel's link-local address stays: {found:?}");
    });
}

#[test]
fn routes_replace_the_one_to_the_same_destination() {
    in_new_netns(|| {
        let mut links = Links::new().unwrap();
        links.create_veth("d0", "d1", None).unwrap();
        links.add_address("d0", net("10.244.1.2/24")).unwrap();
        links.set_up("d0").unwrap();
        links.set_up("d1").unwrap();
        let via = |gateway: &str, destination: &str| Route {
            destination: net(destination),
            gateway: Some(gateway.parse().unwrap()),
            link: None,
        };
        links.add_route(&via("10.244.1.9", "0.0.0.0/0")).unwrap();
        links.add_route(&via("10.244.1.1", "0.0.0.0/0")).unwrap();
        links.add_route(&via("10.244.1.3", "10.244.2.0/24")).unwrap();
        let on_link = Route { destination: net("192.0.2.0/24"), gateway: None, link: Some(name("d0")) };
        links.add_route(&on_link).unwrap();
        links.add_route(&on_link).unwrap();
        let shown = output("ip", &["route"]);
        assert!(shown.contains("default via 10.244.1.1 dev d0"), "{shown}");
        assert!(!shown.contains("10.244.1.9"), "{shown}");
        assert!(shown.contains("10.244.2.0/24 via 10.244.1.3"), "{shown}");
        assert!(shown.contains("192.0.2.0/24 dev d0"), "{shown}");

        let unreachable = links.add_route(&via("172.16.0.1", "198.51.100.0/24")).unwrap_err();
        assert_eq!(unreachable.to_string(), "failed to add route to 198.51.100.0/24");
        let cause = std::error::Error::source(&unreachable).unwrap().to_string();
        assert!(cause.contains("Nexthop has invalid gateway"), "the kernel's sentence is kept: {cause}");
    });
}

#[test]
fn sysctls_change_this_namespace_only() {
    in_new_netns(|| {
        netlink::sysctl("net/ipv4/ip_forward", "1").unwrap();
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim().to_string();
        assert_eq!(read(), "1");
        in_new_netns(move || assert_eq!(read(), "0"));
        for bad in ["kernel/hostname", "net/../kernel/hostname", "net/", "net", "/etc/passwd", "net//x"] {
            let err = netlink::sysctl(bad, "1").unwrap_err().to_string();
            assert!(err.contains("is not a setting below /proc/sys/net"), "{bad}: {err}");
        }
    });
}

fn masquerade_like_plan() -> NetPlan {
    let guest = "10.0.2.2".parse().unwrap();
    let table = Table {
        family: Family::Ip,
        name: "nat",
        chains: vec![
            Chain {
                name: "prerouting",
                base: Some(Base { hook: Hook::Prerouting, priority: -100 }),
                rules: vec![Rule { matches: vec![Match::InputLink(name("eth0"))], verdict: Verdict::Jump("INBOUND") }],
            },
            Chain {
                name: "INBOUND",
                base: None,
                rules: vec![Rule {
                    matches: vec![Match::DestinationPort(Protocol::Tcp, 22)],
                    verdict: Verdict::Dnat(guest),
                }],
            },
            Chain {
                name: "postrouting",
                base: Some(Base { hook: Hook::Postrouting, priority: 100 }),
                rules: vec![Rule { matches: vec![Match::Source(guest)], verdict: Verdict::Masquerade }],
            },
        ],
    };
    NetPlan {
        renames: vec![],
        links: vec![
            Link {
                name: name("k6t-eth0"),
                kind: LinkKind::Bridge,
                mac: Some(MacAddr([2, 0, 0, 0, 0, 0])),
                mtu: Some(1450),
                master: None,
                addresses: vec![net("10.0.2.1/24")],
            },
            Link {
                name: name("tap0"),
                kind: LinkKind::Tap(tap(1)),
                mac: None,
                mtu: Some(1450),
                master: Some(name("k6t-eth0")),
                addresses: vec![],
            },
        ],
        routes: vec![Route {
            destination: net("192.0.2.0/24"),
            gateway: Some("10.0.2.9".parse().unwrap()),
            link: None,
        }],
        sysctls: vec![
            Sysctl::new("net/ipv4/ip_forward", "1"),
            Sysctl::new("net/ipv4/conf/k6t-eth0/route_localnet", "1"),
        ],
        nft: vec![table],
    }
}

#[test]
fn a_plan_can_be_applied_twice_and_gives_the_same_namespace() {
    in_new_netns(|| {
        let other_rules = "table ip nat { chain OTHER { counter accept; }; }";
        netlink::nft_apply(other_rules).unwrap();
        let plan = masquerade_like_plan();
        netlink::apply(&plan).unwrap();
        let first = (netlink::observe().unwrap(), output("nft", &["list", "ruleset"]));
        netlink::apply(&plan).unwrap();
        let second = (netlink::observe().unwrap(), output("nft", &["list", "ruleset"]));
        // The link-local address may need a moment to appear; it is not the plan's.
        let names = |o: &netplan::Observed| o.links.iter().map(|l| (l.index, l.name.clone())).collect::<Vec<_>>();
        assert_eq!(names(&first.0), names(&second.0));
        assert_eq!(first.1, second.1);

        let bridge = second.0.link("k6t-eth0").unwrap();
        assert!(bridge.addresses.contains(&net("10.0.2.1/24")) && bridge.up && bridge.mtu == 1450);
        let tap = second.0.link("tap0").unwrap();
        assert!(tap.master == Some(bridge.index) && tap.mtu == 1450 && tap.up);
        assert_eq!(second.1.matches("dnat to 10.0.2.2").count(), 1, "{}", second.1);
        assert!(second.1.contains("chain OTHER"), "another's rules stay: {}", second.1);
    });
}

#[test]
fn a_failing_plan_reports_every_failure() {
    in_new_netns(|| {
        Links::new().unwrap().create_bridge("tap0").unwrap();
        let mut plan = masquerade_like_plan();
        plan.sysctls.push(Sysctl::new("net/ipv4/no_such_setting", "1"));
        let errors = netlink::apply(&plan).unwrap_err();
        assert_eq!(errors.0.len(), 2, "{errors}");
        let text = errors.to_string();
        assert!(text.contains("link tap0 exists") && text.contains("no_such_setting to 1: No such file"), "{text}");
        // What did not depend on the failed part is there.
        assert!(Links::new().unwrap().get("k6t-eth0").unwrap().is_some());
    });
}

#[test]
fn nft_speaks_json_too_and_says_what_is_wrong() {
    in_new_netns(|| {
        let json = serde_json::json!({"nftables": [{"add": {"table": {"family": "ip", "name": "t"}}}]});
        netlink::nft_apply(&json.to_string()).unwrap();
        assert!(output("nft", &["list", "ruleset"]).contains("table ip t"));
        let err = netlink::nft_apply("add rule ip t nochain accept").unwrap_err().to_string();
        assert!(err.starts_with("nft refused the rules:") && err.contains("nochain"), "{err}");
    });
}
