//! Network interfaces: the guest's NIC, connected to a tap device created by virt-handler.

use api::v1::{Binding, Interface as Given, VirtualMachineInstance};

use super::refuse::later;
use super::virtio_model;
use crate::error::Error;
use crate::facts::HostFacts;
use crate::xml::{AcpiIndex, Alias, Boot, Interface, InterfaceTarget, Mac, Model, Mtu, OnOff, Rom};

pub(super) fn interfaces(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Result<Vec<Interface>, Error> {
    let given = vmi.spec.domain.devices.interfaces.iter().enumerate();
    given
        .filter(|(_, interface)| interface.state.as_deref() != Some("absent"))
        .map(|(index, interface)| convert(vmi, facts, index, interface))
        .collect()
}

fn convert(vmi: &VirtualMachineInstance, facts: &HostFacts, index: usize, given: &Given) -> Result<Interface, Error> {
    let field = format!("spec.domain.devices.interfaces[{index}]");
    match given.bound_by() {
        Binding::Masquerade | Binding::Bridge => {}
        Binding::Sriov
        | Binding::Passt
        | Binding::Plugin(_)
        | Binding::Macvtap
        | Binding::OldPasst
        | Binding::Slirp
        | Binding::Unset => {
            let detail = "only the bindings masquerade and bridge are supported by this version";
            return Err(Error::unsupported(field, detail));
        }
    }
    if given.pci_address.is_some() {
        return Err(later(format!("{field}.pciAddress")));
    }
    if !vmi.spec.networks.iter().any(|network| network.name == given.name) {
        return Err(Error::invalid(format!("{field}.name"), format!("no network is named {:?}", given.name)));
    }
    let known = facts
        .interfaces
        .iter()
        .find(|known| known.name == given.name)
        .ok_or_else(|| Error::MissingFact { what: "the tap device", of: format!("interface {}", given.name) })?;
    let bootable = given.boot_order.is_some();
    Ok(Interface {
        type_: "ethernet",
        mac: Mac { address: mac(given).unwrap_or_else(|| known.mac.clone()) },
        target: InterfaceTarget { dev: known.tap.clone(), managed: "no" },
        model: Model { type_: model(vmi, given, &field)? },
        mtu: Mtu { size: known.mtu },
        link: (given.state.as_deref() == Some("down")).then_some(OnOff { state: "down" }),
        boot: given.boot_order.map(|order| Boot { order }),
        // Without a boot order the NIC's boot ROM would only slow the firmware down.
        rom: (!bootable).then_some(Rom { enabled: "no" }),
        acpi: given.acpi_index.filter(|&index| index > 0).map(|index| AcpiIndex { index }),
        alias: Alias::user(&given.name),
    })
}

/// The API also accepts dashes and capitals; libvirt only accepts colons.
fn mac(given: &Given) -> Option<String> {
    let address = given.mac_address.as_deref().filter(|address| !address.is_empty())?;
    Some(address.replace('-', ":").to_ascii_lowercase())
}

fn model(vmi: &VirtualMachineInstance, given: &Given, field: &str) -> Result<String, Error> {
    match given.model.as_deref().unwrap_or_default() {
        "" | "virtio" => Ok(virtio_model(vmi).to_owned()),
        model @ ("e1000" | "e1000e" | "ne2k_pci" | "pcnet" | "rtl8139") => Ok(model.to_owned()),
        other => Err(Error::invalid(format!("{field}.model"), format!("{other:?} is not a model"))),
    }
}
