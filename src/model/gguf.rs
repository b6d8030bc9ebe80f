//! Reads and writes the metadata and tensor descriptions of a GGUF file, with llama.cpp's own
//! `gguf_*` functions. The tensors' data is not held here.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{self, NonNull};

use llama_cpp_sys_2 as sys;

use super::library;

/// A GGUF file's header, in memory.
pub struct Gguf(NonNull<sys::gguf_context>);

/// One tensor of a file, as its header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The tensor's name.
    pub name: String,
    /// ggml's number of its type.
    pub type_number: u32,
    /// Its type, as ggml names it: `q4_K`.
    pub type_name: String,
    /// The dimensions: numbers in a row, rows, and two more.
    pub dims: [u64; 4],
    /// Bytes of its data.
    pub bytes: u64,
    /// The offset of its data from the end of the header.
    pub offset: u64,
}

impl TensorInfo {
    /// Whether llama.cpp computes with this tensor's type. With others, it ends the process, or reads
    /// memory that is not its own.
    pub fn is_computable(&self) -> bool {
        if self.type_number == sys::GGML_TYPE_F32 {
            return true;
        }
        // SAFETY: ggml checked the type when it read the file, and the description is a constant.
        let to_float = unsafe { (*sys::ggml_get_type_traits(self.type_number)).to_float };
        let is_vector = self.name.ends_with("norm.weight") || self.name.ends_with(".bias");
        match self.type_number {
            // Tables of tokens: DeepSeek 4's experts of a token, and the vocabulary of a draft.
            sys::GGML_TYPE_I32 => self.name.ends_with("tid2eid.weight"),
            sys::GGML_TYPE_I64 => self.name == "d2t",
            // Sums and products of numbers with 32-bit activations.
            _ => to_float.is_some() && !is_vector,
        }
    }
}

/// Reads the header and skips the data.
const HEADER_ONLY: sys::gguf_init_params =
    sys::gguf_init_params { no_alloc: true, ctx: ptr::null_mut() };

impl Gguf {
    /// A header without metadata and tensors.
    pub fn empty() -> Self {
        // SAFETY: no preconditions.
        let context = unsafe { sys::gguf_init_empty() };
        Self(NonNull::new(context).expect("C++'s new does not return null"))
    }

    /// The header of a file in memory; `None` if it is not a GGUF file.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the pointer and the length are those of a live slice, and the header is copied
        // out of it.
        let context =
            unsafe { sys::gguf_init_from_buffer(bytes.as_ptr().cast(), bytes.len(), HEADER_ONLY) };
        NonNull::new(context).map(Self)
    }

    /// The header of a file; `None` if it cannot be read.
    pub fn open(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
        // SAFETY: the path is NUL-terminated and lives until the call returns.
        let open = || unsafe { corelane_gguf_open(path.as_ptr(), HEADER_ONLY) };
        let context = library::guarded(open);
        NonNull::new(context).map(Self)
    }

    fn raw(&self) -> *mut sys::gguf_context {
        self.0.as_ptr()
    }

    fn find(&self, key: &str) -> Option<i64> {
        let key = c_string(key);
        // SAFETY: the context is live, the key NUL-terminated.
        let id = unsafe { sys::gguf_find_key(self.raw(), key.as_ptr()) };
        (id >= 0).then_some(id)
    }

    /// The id and length of an array of `kind`.
    fn array(&self, key: &str, kind: sys::gguf_type) -> Option<(i64, usize)> {
        let id = self.find(key)?;
        // SAFETY: the context is live and the key exists. The types are checked in this order
        // because asking for the array type of a scalar aborts.
        unsafe {
            let is_array = sys::gguf_get_kv_type(self.raw(), id) == sys::GGUF_TYPE_ARRAY;
            let fits = is_array && sys::gguf_get_arr_type(self.raw(), id) == kind;
            fits.then(|| (id, sys::gguf_get_arr_n(self.raw(), id)))
        }
    }

    /// A text; `None` if this key has none.
    pub fn text(&self, key: &str) -> Option<String> {
        let id = self.find(key)?;
        // SAFETY: the context is live and the key exists. Its text, which ends with a NUL, is copied.
        unsafe {
            if sys::gguf_get_kv_type(self.raw(), id) != sys::GGUF_TYPE_STRING {
                return None;
            }
            Some(
                CStr::from_ptr(sys::gguf_get_val_str(self.raw(), id))
                    .to_string_lossy()
                    .into_owned(),
            )
        }
    }

    /// A whole number of 16 or 32 bits without a sign; `None` if this key has none.
    pub fn number(&self, key: &str) -> Option<u32> {
        let id = self.find(key)?;
        // SAFETY: the context is live, the key exists, and its type is checked.
        unsafe {
            match sys::gguf_get_kv_type(self.raw(), id) {
                sys::GGUF_TYPE_UINT16 => Some(sys::gguf_get_val_u16(self.raw(), id).into()),
                sys::GGUF_TYPE_UINT32 => Some(sys::gguf_get_val_u32(self.raw(), id)),
                _ => None,
            }
        }
    }

    /// An array of strings; `None` if this key has none.
    pub fn strings(&self, key: &str) -> Option<Vec<CString>> {
        let (id, length) = self.array(key, sys::GGUF_TYPE_STRING)?;
        // SAFETY: the key holds `length` strings. They live as long as the context and are copied.
        let string =
            |i| unsafe { CStr::from_ptr(sys::gguf_get_arr_str(self.raw(), id, i)).to_owned() };
        Some((0..length).map(string).collect())
    }

    /// An array of 32-bit integers; `None` if this key has none.
    pub fn integers(&self, key: &str) -> Option<Vec<i32>> {
        let (id, length) = self.array(key, sys::GGUF_TYPE_INT32)?;
        // SAFETY: the key holds `length` integers of 4 bytes. They are read as bytes, which need no
        // alignment, and copied.
        let bytes = unsafe {
            let data = sys::gguf_get_arr_data(self.raw(), id).cast::<u8>();
            std::slice::from_raw_parts(data, length * size_of::<i32>())
        };
        let integer = |four: &[u8]| i32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        Some(bytes.chunks_exact(4).map(integer).collect())
    }

    /// Copies each entry of `other` whose key starts with `prefix`. Removes the entries of `self`
    /// whose keys do not.
    pub fn adopt(&mut self, other: &Self, prefix: &str) {
        // SAFETY: both contexts are live, and everything is copied.
        let keys: Vec<CString> = unsafe {
            sys::gguf_set_kv(self.raw(), other.raw());
            (0..sys::gguf_get_n_kv(self.raw()))
                .map(|id| CStr::from_ptr(sys::gguf_get_key(self.raw(), id)).to_owned())
                .collect()
        };
        for key in keys.iter().filter(|key| !key.to_bytes().starts_with(prefix.as_bytes())) {
            // SAFETY: the context is live, the key NUL-terminated.
            unsafe { sys::gguf_remove_key(self.raw(), key.as_ptr()) };
        }
    }

    /// Sets a string.
    pub fn set_text(&mut self, key: &str, value: &str) {
        let (key, value) = (c_string(key), c_string(value));
        // SAFETY: the context is live; both strings are copied.
        unsafe { sys::gguf_set_val_str(self.raw(), key.as_ptr(), value.as_ptr()) };
    }

    /// Sets an unsigned integer.
    pub fn set_number(&mut self, key: &str, value: u32) {
        let key = c_string(key);
        // SAFETY: the context is live; the key is copied.
        unsafe { sys::gguf_set_val_u32(self.raw(), key.as_ptr(), value) };
    }

    /// Sets a truth value.
    pub fn set_flag(&mut self, key: &str, value: bool) {
        let key = c_string(key);
        // SAFETY: the context is live, and the key is copied.
        unsafe { sys::gguf_set_val_bool(self.raw(), key.as_ptr(), value) };
    }

    /// Sets a float.
    pub fn set_float(&mut self, key: &str, value: f32) {
        let key = c_string(key);
        // SAFETY: the context is live; the key is copied.
        unsafe { sys::gguf_set_val_f32(self.raw(), key.as_ptr(), value) };
    }

    /// Sets an array of strings.
    pub fn set_strings(&mut self, key: &str, values: &[CString]) {
        let key = c_string(key);
        let mut pointers: Vec<_> = values.iter().map(|value| value.as_ptr()).collect();
        // SAFETY: the context is live; one string is copied for each pointer.
        unsafe {
            sys::gguf_set_arr_str(self.raw(), key.as_ptr(), pointers.as_mut_ptr(), pointers.len());
        }
    }

    /// Sets an array of 32-bit integers.
    pub fn set_integers(&mut self, key: &str, values: &[i32]) {
        let (key, data) = (c_string(key), values.as_ptr().cast());
        // SAFETY: the context is live; exactly the integers of the slice are copied.
        unsafe {
            let kind = sys::GGUF_TYPE_INT32;
            sys::gguf_set_arr_data(self.raw(), key.as_ptr(), kind, data, values.len());
        }
    }

    /// Describes another tensor, whose data follows the previous one's. Names are unique and
    /// shorter than 64 bytes. Returns the offset of its data from the end of the header, in bytes.
    pub fn add_tensor(&mut self, name: &str, kind: sys::ggml_type, dims: [u64; 3]) -> u64 {
        let name = c_string(name);
        let dims = dims.map(|dim| i64::try_from(dim).expect("bounded by the shape"));
        // SAFETY: the context has room for the one tensor made in it. The tensor has no data
        // (`no_alloc`), and its description is copied before it is freed.
        unsafe {
            let context = sys::ggml_init(sys::ggml_init_params {
                mem_size: sys::ggml_tensor_overhead(),
                mem_buffer: ptr::null_mut(),
                no_alloc: true,
            });
            assert!(!context.is_null(), "no memory for the description of a tensor");
            let tensor = sys::ggml_new_tensor_3d(context, kind, dims[0], dims[1], dims[2]);
            sys::ggml_set_name(tensor, name.as_ptr());
            sys::gguf_add_tensor(self.raw(), tensor);
            sys::ggml_free(context);
            let last = sys::gguf_get_n_tensors(self.raw()) - 1;
            sys::gguf_get_tensor_offset(self.raw(), last) as u64
        }
    }

    /// The header's bytes, padded so that tensor data follows directly.
    pub fn header(&self) -> Vec<u8> {
        // SAFETY: the context is live, and the buffer has the size that ggml asked for.
        unsafe {
            let mut header = vec![0u8; sys::gguf_get_meta_size(self.raw())];
            sys::gguf_get_meta_data(self.raw(), header.as_mut_ptr().cast());
            header
        }
    }

    /// All tensors, in the order of their data.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        // SAFETY: the context is live and the ids are below its count. Names and dimensions are
        // copied. ggml checked the type when it read the file.
        let tensor = |id| unsafe {
            let kind = sys::gguf_get_tensor_type(self.raw(), id);
            let dims = *sys::gguf_get_tensor_ne(self.raw(), id).cast::<[i64; 4]>();
            TensorInfo {
                name: text(sys::gguf_get_tensor_name(self.raw(), id)),
                type_number: kind,
                type_name: text(sys::ggml_type_name(kind)),
                dims: dims.map(i64::cast_unsigned), // never negative
                bytes: sys::gguf_get_tensor_size(self.raw(), id) as u64,
                offset: sys::gguf_get_tensor_offset(self.raw(), id) as u64,
            }
        };
        // SAFETY: the context is live.
        let count = unsafe { sys::gguf_get_n_tensors(self.raw()) };
        (0..count).map(tensor).collect()
    }

    /// The least size of the whole file in bytes.
    pub fn file_bytes_min(&self) -> u64 {
        // SAFETY: the context is live.
        let data = unsafe { sys::gguf_get_data_offset(self.raw()) } as u64;
        let ends = self.tensors().into_iter().map(|tensor| tensor.offset + tensor.bytes);
        data + ends.max().unwrap_or(0)
    }
}

impl Drop for Gguf {
    fn drop(&mut self) {
        // SAFETY: the context is freed once, by its only owner.
        unsafe { sys::gguf_free(self.raw()) };
    }
}

unsafe extern "C" {
    /// `gguf_init_from_file`, with null for an exception.
    fn corelane_gguf_open(
        path: *const std::ffi::c_char,
        params: sys::gguf_init_params,
    ) -> *mut sys::gguf_context;
}

/// # Safety
/// `pointer` must point to a NUL-terminated string.
unsafe fn text(pointer: *const std::ffi::c_char) -> String {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Converts a key or a name of corelane, which contains no NUL.
fn c_string(text: &str) -> CString {
    CString::new(text).expect("no NUL in a key of ours")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::builtin;

    #[test]
    fn what_is_set_is_read_back() {
        let builtin = Gguf::from_bytes(builtin::GGUF).unwrap();
        let mut made = Gguf::empty();
        made.set_text("general.name", "gone");
        made.adopt(&builtin, "tokenizer.");
        made.set_integers("a", &[1, -2]);
        let first = made.add_tensor("x", sys::GGML_TYPE_F16, [3, 5, 1]);
        let second = made.add_tensor("y", sys::GGML_TYPE_F32, [4, 1, 2]);
        assert_eq!((first, second), (0, 32), "aligned to 32 bytes");

        let read = Gguf::from_bytes(&made.header()).unwrap();
        assert!(read.find("general.name").is_none());
        assert_eq!(read.integers("a"), Some(vec![1, -2]));
        assert_eq!(read.strings("a"), None, "of another type");
        assert_eq!(read.strings("tokenizer.ggml.merges"), builtin.strings("tokenizer.ggml.merges"));
        let tensors = read.tensors();
        assert_eq!((tensors[0].type_name.as_str(), tensors[0].bytes), ("f16", 30));
        assert_eq!((tensors[1].name.as_str(), tensors[1].dims), ("y", [4, 1, 2, 1]));
        assert_eq!(read.file_bytes_min(), made.header().len() as u64 + 32 + 32);
    }

    #[test]
    fn what_is_no_header_is_none() {
        assert!(Gguf::from_bytes(b"").is_none());
        assert!(Gguf::from_bytes(b"GGUF").is_none());
        assert!(Gguf::open(Path::new("/nonexistent")).is_none());
        // A key without a name: llama.cpp asserts that there is one.
        let mut nameless = b"GGUF\x03\0\0\0".to_vec();
        for number in [0, 1, 0_u64] {
            nameless.extend(number.to_le_bytes()); // tensors, keys, length of the first key
        }
        nameless.extend([4, 0, 0, 0, 7, 0, 0, 0]); // a u32, 7
        let path = std::env::temp_dir().join(format!("corelane-nameless-{}", std::process::id()));
        std::fs::write(&path, nameless).unwrap();
        crate::model::library::start();
        assert!(Gguf::open(&path).is_none());
        std::fs::remove_file(&path).unwrap();

        let whole = Gguf::from_bytes(builtin::GGUF).unwrap();
        assert!(whole.file_bytes_min() <= builtin::GGUF.len() as u64);
    }
}
