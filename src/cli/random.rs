//! Random numbers of the kernel, for secrets and seeds.

/// Random bytes.
///
/// # Errors
/// A sentence for the user, if the kernel has none.
pub fn bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("the kernel has no random numbers: {error}"))?;
    Ok(bytes)
}
