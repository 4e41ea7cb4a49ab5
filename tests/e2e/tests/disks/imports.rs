//! Images that become disks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use drive::{Access, Guest, poll};
use e2e::manifest::Manifest;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::cluster;
use crate::embedded;

/// To fetch and convert 50 MB on a busy machine.
const IMPORT: std::time::Duration = std::time::Duration::from_secs(120);

pub(super) fn trials() -> Vec<Trial> {
    vec![
        embedded("disk_imported_over_http_boots_and_outlives_its_vm", boots),
        embedded("disk_uploaded_with_kubevirts_virtctl_is_what_was_sent", uploaded),
        embedded("disk_import_that_fails_says_why", fails),
    ]
}

/// A VM with an imported disk: boot, write, delete the VM and make it again, and the file is there.
async fn boots() -> Result<()> {
    let cluster = cluster().await?;
    let server = Server::start(e2e::guest_dir()?.join("containerdisk/disk"))?;
    let volume = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "imported"},
        "spec": {
            "source": {"http": {"url": format!("http://{}/disk.qcow2", server.address)}},
            "storage": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "128Mi"}}},
        },
    });
    apply(&cluster, &volume)?;
    let manifest = Manifest::boots_from_disk("imported", "Always").data_volume("root", "imported");
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    succeeded(&cluster, "imported").await?;
    let write = "mount -t vfat /dev/vda /mnt && echo kept-$((40+2)) >/mnt/kept.txt && umount /mnt && sync && echo done";
    let told = guest.run_shell_command(write).await?;
    ensure!(told.contains("done"), "the guest cannot write a file: {told}");
    guest.delete().await?;
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    let told = guest.run_shell_command("mount -t vfat /dev/vda /mnt && cat /mnt/kept.txt; umount /mnt").await?;
    ensure!(told.contains("kept-42"), "the file is not there: {told}");
    guest.delete().await?;
    delete_data_volume(&cluster, "imported").await
}

async fn uploaded() -> Result<()> {
    let cluster = cluster().await?;
    let image = e2e::guest_dir()?.join("containerdisk/disk/disk.qcow2");
    let path = image.to_string_lossy().into_owned();
    let words =
        ["image-upload", "dv", "uploaded", "--size=128Mi", "--insecure", "--force-bind", "--access-mode=ReadWriteMany"];
    let file = format!("--image-path={path}");
    let args: Vec<&str> = words.into_iter().chain([file.as_str()]).collect();
    let Some(mut command) = e2e::upstream_virtctl(cluster.kubeconfig(), &args)? else { return Ok(()) };
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("cannot run virtctl")?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "virtctl image-upload failed: {text}");
    succeeded(&cluster, "uploaded").await?;
    let guest =
        Guest::spawn(&cluster, Manifest::boots_from_disk("uploaded", "Always").data_volume("root", "uploaded").json())
            .await?;
    guest.wait_to_boot().await?;
    guest.delete().await?;
    delete_data_volume(&cluster, "uploaded").await
}

/// Nothing is there, and what is there is not an image that may be imported.
async fn fails() -> Result<()> {
    let cluster = cluster().await?;
    let folder = tempfile::tempdir()?;
    let evil = folder.path().join("evil.qcow2");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-u", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw"])
        .arg(&evil)
        .arg("1M")
        .status()
        .context("cannot run qemu-img")?;
    ensure!(made.success(), "qemu-img made no image");
    let server = Server::start(folder.path().to_owned())?;
    for (name, file, words) in [("missing", "nothing.img", &["404"][..]), ("evil", "evil.qcow2", &["backing file"][..])]
    {
        let volume = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"name": name, "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"}},
            "spec": {
                "source": {"http": {"url": format!("http://{}/{file}", server.address)}},
                "storage": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}},
            },
        });
        apply(&cluster, &volume)?;
        let api = data_volumes(&cluster).await?;
        poll(&format!("{name} to say why"), IMPORT, || async {
            let found = api.get(name).await.map_err(|err| err.to_string())?;
            let conditions = found.data["status"]["conditions"].to_string();
            let said = words.iter().all(|word| conditions.contains(word));
            if said { Ok(()) } else { Err(format!("{} with {conditions}", found.data["status"]["phase"])) }
        })
        .await?;
        delete_data_volume(&cluster, name).await?;
    }
    Ok(())
}

async fn data_volumes(cluster: &Access) -> Result<Api<DynamicObject>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume"));
    Ok(Api::default_namespaced_with(cluster.client().await?, &kind))
}

async fn succeeded(cluster: &Access, name: &str) -> Result<()> {
    let api = data_volumes(cluster).await?;
    poll(&format!("DataVolume {name} to succeed"), IMPORT, || async {
        let found = api.get(name).await.map_err(|err| err.to_string())?;
        let status = &found.data["status"];
        if status["phase"] == "Succeeded" { Ok(()) } else { Err(format!("its status is {status}")) }
    })
    .await
}

/// Deletes a DataVolume, with which its claim goes.
async fn delete_data_volume(cluster: &Access, name: &str) -> Result<()> {
    data_volumes(cluster).await?.delete(name, &DeleteParams::default()).await.context("deleting a DataVolume")?;
    let claims = super::claims(cluster).await?;
    poll(&format!("the end of claim {name}"), IMPORT, || async {
        match claims.get_opt(name).await.map_err(|err| err.to_string())? {
            None => Ok(()),
            Some(_) => Err("it is still there".to_owned()),
        }
    })
    .await
}

fn apply(cluster: &Access, object: &Value) -> Result<()> {
    let file = tempfile::Builder::new().suffix(".json").tempfile()?;
    std::fs::write(file.path(), object.to_string())?;
    let output = cluster.command(&["apply", "-f"]).arg(file.path()).output().context("cannot run apply")?;
    ensure!(output.status.success(), "apply failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A web server on loopback with the files of a folder, as long as it lives.
struct Server {
    address: SocketAddr,
}

impl Server {
    fn start(folder: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let folder = folder.clone();
                // Who does not want the answer to its end is not an error of the server.
                std::thread::spawn(move || answer(stream, &folder).unwrap_or_default());
            }
        });
        Ok(Self { address })
    }
}

/// Answers one request, without ranges.
fn answer(mut stream: TcpStream, folder: &std::path::Path) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 16384 {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let mut words = text.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Ok(body) = std::fs::read(folder.join(path.trim_start_matches('/'))) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    if method == "HEAD" { Ok(()) } else { stream.write_all(&body) }
}
