//! Names of functions for addresses: of this program, of its libraries and of the kernel.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use flate2::CrcReader;
use object::{Object, ObjectSegment, ReadCache, ReadRef};

use super::stack::Frame;

const PROGRAM: &str = "/proc/self/exe";

/// The sources of function names.
pub struct Symbols {
    /// The file with the program's symbols: the program, or the one that they were moved to.
    file: PathBuf,
    /// The program, as a path.
    program: String,
    /// The difference between addresses of the program in memory and in its file.
    bias: u64,
    mappings: Vec<Mapping>,
}

/// A part of a file in memory.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    addresses: Range<u64>,
    path: String,
}

impl Symbols {
    /// Looks for the program's symbols: in the program, or in the file that it names, beside the
    /// program or under `/usr/lib/debug`.
    ///
    /// # Errors
    /// A sentence, if there are none.
    pub fn find() -> Result<Self, String> {
        let unreadable = |error: &dyn std::fmt::Display| format!("cannot read {PROGRAM}: {error}");
        // Reads only the parts that are asked for: the program is large.
        let data = ReadCache::new(fs::File::open(PROGRAM).map_err(|error| unreadable(&error))?);
        let program = object::File::parse(&data).map_err(|error| unreadable(&error))?;
        let path = fs::read_link(PROGRAM).map_err(|error| unreadable(&error))?;
        let file = match program.symbols().next() {
            Some(_) => PathBuf::from(PROGRAM),
            None => moved(&program, &path)?,
        };
        let maps = fs::read_to_string("/proc/self/maps")
            .map_err(|error| format!("cannot read /proc/self/maps: {error}"))?;
        let mappings = mappings(&maps);
        let path = path.to_string_lossy().into_owned();
        let first = mappings.iter().find(|mapping| mapping.path == path);
        let first = first.ok_or_else(|| format!("{path} is not in /proc/self/maps"))?;
        let address = program.segments().find(|part| part.file_range().0 == 0);
        let bias = first.addresses.start - address.map_or(0, |part| part.address());
        Ok(Self { file, program: path, bias, mappings })
    }

    /// The name of each frame.
    ///
    /// # Errors
    /// A sentence, if the program's symbols cannot be read.
    pub fn names(
        &self,
        frames: impl Iterator<Item = Frame>,
    ) -> Result<HashMap<Frame, String>, String> {
        let frames: BTreeSet<Frame> = frames.collect();
        let symbolizer =
            Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        let (mut own, mut library, mut kernel) = (Vec::new(), Vec::new(), Vec::new());
        for frame in frames {
            match frame {
                Frame::User(address) if self.path_of(address) == Some(&self.program) => {
                    own.push((frame, address - self.bias));
                }
                Frame::User(address) => library.push((frame, address)),
                Frame::Kernel(address) => kernel.push((frame, address)),
            }
        }
        let mut process = Process::new(Pid::Slf);
        process.map_files = false; // would need a capability
        process.perf_map = false;
        // No vmlinux file is searched for: the running kernel lists its symbols.
        let running = Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() };
        let mut names = HashMap::new();
        let mut add = |places: &[(Frame, u64)], source: Source, in_file| {
            if places.is_empty() {
                return Ok(()); // skip the kernel's many symbols
            }
            let addresses: Vec<u64> = places.iter().map(|(_, address)| *address).collect();
            let input = match in_file {
                true => Input::VirtOffset(&*addresses),
                false => Input::AbsAddr(&*addresses),
            };
            let found = symbolizer.symbolize(&source, input);
            if let (Err(error), true) = (&found, in_file) {
                return Err(format!("cannot read the symbols in {}: {error}", self.file.display()));
            }
            let found = found.unwrap_or_default(); // without symbols, the file is named
            for (index, (frame, _)) in places.iter().enumerate() {
                let name = match found.get(index) {
                    Some(Symbolized::Sym(symbol)) => symbol.name.replace(';', ":"),
                    _ => self.unnamed(*frame),
                };
                names.insert(*frame, name);
            }
            Ok(())
        };
        add(&own, Elf::new(&self.file).into(), true)?;
        add(&library, process.into(), false)?;
        add(&kernel, running.into(), false)?;
        Ok(names)
    }

    /// A frame without a symbol has the name of its file, as perf shows it.
    fn unnamed(&self, frame: Frame) -> String {
        let Frame::User(address) = frame else { return "[kernel]".into() };
        let path = self.path_of(address).unwrap_or("unknown");
        let name = path.rsplit('/').next().unwrap_or(path);
        format!("[{}]", name.trim_matches(['[', ']']))
    }

    /// The file that is at an address.
    fn path_of(&self, address: u64) -> Option<&str> {
        let found = self.mappings.iter().find(|mapping| mapping.addresses.contains(&address));
        found.map(|mapping| mapping.path.as_str())
    }
}

/// The file that the symbols of a stripped program were moved to.
fn moved<'data>(
    program: &object::File<'data, impl ReadRef<'data>>,
    path: &Path,
) -> Result<PathBuf, String> {
    let stripped =
        || format!("{} has no symbols, so a profile could name no function", path.display());
    let Ok(Some((name, sum))) = program.gnu_debuglink() else { return Err(stripped()) };
    let name = String::from_utf8_lossy(name).into_owned();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let apart = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").unwrap_or(folder));
    let places = [folder.join(&name), folder.join(".debug").join(&name), apart.join(&name)];
    let fits = |file: &&PathBuf| {
        let Ok(file) = fs::File::open(file) else { return false };
        let mut reader = CrcReader::new(BufReader::new(file));
        io::copy(&mut reader, &mut io::sink()).is_ok() && reader.crc().sum() == sum
    };
    places.iter().find(fits).cloned().ok_or_else(|| {
        format!(
            "{}; the file with its symbols, {name}, was made with it: put it to {}",
            stripped(),
            places[2].display()
        )
    })
}

/// The named mappings in `/proc/self/maps`. A line is: start-end flags offset device inode path.
fn mappings(maps: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let path = fields.nth(4)?.trim().to_owned();
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Mapping { addresses: number(start)?..number(end)?, path })
    };
    maps.lines().filter_map(mapping).filter(|mapping| !mapping.path.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        let maps = "1000-2000 r--p 00000000 08:01 7                  /bin/a b (deleted)\n\
                    2000-5000 rw-p 00000000 00:00 0 \n\
                    7fff1000-7fff2000 r-xp 00000000 00:00 0          [vdso]\n";
        let mapping = |addresses, path: &str| Mapping { addresses, path: path.into() };
        let expected = [
            mapping(0x1000..0x2000, "/bin/a b (deleted)"),
            mapping(0x7fff_1000..0x7fff_2000, "[vdso]"),
        ];
        assert_eq!(mappings(maps), expected);
    }

    #[test]
    fn functions_of_the_program_and_of_its_libraries_have_names() {
        let own = Frame::User(
            functions_of_the_program_and_of_its_libraries_have_names as *const () as u64,
        );
        let library = Frame::User(libc::malloc as *const () as u64);
        let nowhere = Frame::User(16);
        let names = Symbols::find().unwrap().names([own, library, nowhere].into_iter()).unwrap();
        assert!(names[&own].contains("libraries_have_names"), "{names:?}");
        assert!(names[&library].contains("malloc"), "{names:?}");
        assert_eq!(names[&nowhere], "[unknown]");
    }
}
