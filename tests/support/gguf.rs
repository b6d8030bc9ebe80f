//! Splits a GGUF file into two, as llama.cpp's `gguf-split` does.

use std::ops::Range;

const ALIGNMENT: usize = 32;
const UINT16: u32 = 2;
const INT32: u32 = 5;

/// The files of a model. The first one has this many of its tensors.
pub fn split(gguf: &[u8], tensors_in_first: usize) -> [Vec<u8>; 2] {
    let parts = Parts::of(gguf);
    let all = parts.tensors.len();
    [(0, 0..tensors_in_first), (1, tensors_in_first..all)]
        .map(|(number, tensors)| parts.file(number, 2, tensors))
}

/// A file in memory, and the places of its parts.
struct Parts<'a> {
    bytes: &'a [u8],
    entries: u64,
    metadata: Range<usize>,
    tensors: Vec<Tensor>,
}

/// The description of a tensor without its offset, and its data.
struct Tensor {
    description: Range<usize>,
    data: Range<usize>,
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let mut reader = Reader { bytes, at: 8 };
        let (tensors, entries) = (reader.u64(), reader.u64());
        let begin = reader.at;
        for _ in 0..entries {
            reader.string();
            let kind = reader.u32();
            reader.value(kind);
        }
        let metadata = begin..reader.at;
        let described: Vec<(Range<usize>, usize)> = (0..tensors)
            .map(|_| {
                let begin = reader.at;
                reader.string();
                let dims = reader.u32();
                reader.at += dims as usize * 8 + 4;
                (begin..reader.at, reader.u64() as usize)
            })
            .collect();
        let data = reader.at.next_multiple_of(ALIGNMENT);
        let ends = described.iter().skip(1).map(|(_, offset)| data + offset).chain([bytes.len()]);
        let tensors = described.iter().zip(ends).map(|((description, offset), end)| Tensor {
            description: description.clone(),
            data: data + offset..end,
        });
        let tensors = tensors.collect();
        Self { bytes, entries, metadata, tensors }
    }

    fn file(&self, number: u16, count: u16, tensors: Range<usize>) -> Vec<u8> {
        let metadata = &self.bytes[self.metadata.clone()];
        // llama.cpp takes the metadata of the first file.
        let (entries, metadata) =
            if number == 0 { (self.entries, metadata) } else { (0, &metadata[..0]) };
        let all = self.tensors.len() as i32;
        let tensors = &self.tensors[tensors];
        let mut file = self.bytes[..8].to_vec();
        file.extend((tensors.len() as u64).to_le_bytes());
        file.extend((entries + 3).to_le_bytes());
        file.extend(metadata);
        put(&mut file, "split.no", UINT16, &number.to_le_bytes());
        put(&mut file, "split.count", UINT16, &count.to_le_bytes());
        put(&mut file, "split.tensors.count", INT32, &all.to_le_bytes());
        let mut offset = 0;
        for tensor in tensors {
            file.extend(&self.bytes[tensor.description.clone()]);
            file.extend((offset as u64).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(ALIGNMENT);
        }
        for tensor in tensors {
            file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
            file.extend(&self.bytes[tensor.data.clone()]);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file
    }
}

fn put(file: &mut Vec<u8>, key: &str, kind: u32, value: &[u8]) {
    file.extend((key.len() as u64).to_le_bytes());
    file.extend(key.as_bytes());
    file.extend(kind.to_le_bytes());
    file.extend(value);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u32(&mut self) -> u32 {
        self.at += 4;
        u32::from_le_bytes(self.bytes[self.at - 4..self.at].try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        self.at += 8;
        u64::from_le_bytes(self.bytes[self.at - 8..self.at].try_into().unwrap())
    }

    fn string(&mut self) {
        let length = self.u64() as usize;
        self.at += length;
    }

    /// Skips a value of a type, by GGUF's number.
    fn value(&mut self, kind: u32) {
        match kind {
            8 => self.string(),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                (0..count).for_each(|_| self.value(kind));
            }
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            4..=6 => self.at += 4,
            _ => self.at += 8,
        }
    }
}
