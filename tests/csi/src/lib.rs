//! Tests of the volume engine as a CSI driver, judged by csi-sanity, the conformance test of such drivers.
