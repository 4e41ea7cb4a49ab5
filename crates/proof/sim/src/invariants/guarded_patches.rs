//! 6: once virt-handler owns a VMI, the controllers only write it with JSON patches that test every value they replace.

use json_patch::PatchOperation;
use virt_controller::api::Patch;

use super::support::is_handed_over;
use super::{Invariant, Scene, Verdict};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "guarded_patches"
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        if request.kind != Some(Kind::Vmi) {
            return Ok(());
        }
        let Some(Object::Vmi(vmi)) = scene.cached(pass, Kind::Vmi, &request.key) else { return Ok(()) };
        if !is_handed_over(&vmi) {
            return Ok(());
        }
        match &request.op {
            Op::Replace => Err(format!("instance {} was handed over and is replaced as a whole", request.key)),
            Op::Patch(Patch::Json(patch)) => check(patch).map_err(|why| format!("instance {}: {why}", request.key)),
            // An adoption is guarded by the UID.
            _ => Ok(()),
        }
    }
}

fn check(patch: &json_patch::Patch) -> Verdict {
    let mut tested = Vec::new();
    for operation in &patch.0 {
        match operation {
            PatchOperation::Test(test) => tested.push(test.path.as_str()),
            PatchOperation::Replace(replace) if !tested.contains(&replace.path.as_str()) => {
                return Err(format!("{} is replaced untested", replace.path));
            }
            _ => {}
        }
    }
    Ok(())
}
