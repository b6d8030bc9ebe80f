//! Mixtures of experts: a token chooses some of many matrices, and its row of activations is
//! multiplied with these.
//!
//! The rows of a step are grouped by expert, so that each expert's weights are read once:
//!
//! ```text
//! tokens and experts    (0: 5, 2)  (1: 2, 7)  (2: 2, 5)
//!
//! table   groups        expert 2: 3 rows   expert 5: 2 rows   expert 7: 1 row
//!         from          0  1  2            0  2               1                rows of activations
//!         to            1  2  4            0  5               3                rows of the output
//! ```
//!
//! A piece of work is some strips of one group. Large groups come first, because a thread that began
//! one last would keep the others waiting.

use std::cmp::Reverse;
use std::slice;

use super::formats::LINE;

/// The choices of a step's tokens.
#[derive(Clone, Copy)]
pub struct Choices {
    /// Number of matrices.
    pub experts: usize,
    /// Number of tokens.
    pub tokens: usize,
    /// Experts that each token chooses.
    pub chosen: usize,
    /// Rows of activations of a token: one for all its experts, or one for each.
    pub inputs: usize,
    /// The experts' numbers.
    pub ids: *const i32,
    /// Bytes from one choice of a token to the next, and from one token to the next.
    pub strides: [usize; 2],
}

/// The rows of an expert.
#[derive(Clone, Copy)]
struct Group {
    expert: u32,
    /// The place of its first row in the lists of rows.
    first: u32,
    rows: u32,
}

/// The groups of a step, in memory of [`Choices::table_bytes`].
#[derive(Clone, Copy)]
pub struct Groups {
    groups: *const Group,
    count: usize,
    from: *const u32,
    to: *const u32,
    expert_bytes: usize,
}

impl Choices {
    /// Rows of the output.
    pub fn rows(&self) -> usize {
        self.tokens * self.chosen
    }

    /// Bytes of the table of groups.
    pub fn table_bytes(&self) -> usize {
        table_bytes(self.experts, self.rows())
    }

    /// Writes the table of groups.
    ///
    /// # Panics
    /// If an expert's number is not below the number of experts. In `DeepSeek-V4` some numbers come from
    /// the model's file, so a damaged one can end the process here; ggml would write elsewhere.
    ///
    /// # Safety
    /// `table` has [`Self::table_bytes`], aligned to a line, and the numbers lie where the strides say.
    pub unsafe fn arrange(&self, table: *mut u8) {
        // SAFETY: the caller guarantees it; the parts do not overlap.
        let (groups, from, to) = unsafe {
            let (groups, from, to) = self.parts(table);
            (0..self.experts).for_each(|expert| {
                groups.add(expert).write(Group { expert: expert as u32, first: 0, rows: 0 });
            });
            let rows = self.rows();
            from.write_bytes(0, rows);
            to.write_bytes(0, rows);
            (
                slice::from_raw_parts_mut(groups, self.experts),
                slice::from_raw_parts_mut(from, rows),
                slice::from_raw_parts_mut(to, rows),
            )
        };
        for row in 0..self.rows() {
            // SAFETY: the caller guarantees it.
            groups[unsafe { self.expert(row) }].rows += 1;
        }
        let mut first = 0;
        for group in &mut *groups {
            group.first = first;
            first += group.rows;
            group.rows = 0;
        }
        for row in 0..self.rows() {
            // SAFETY: the caller guarantees it.
            let group = &mut groups[unsafe { self.expert(row) }];
            let place = (group.first + group.rows) as usize;
            group.rows += 1;
            let (token, choice) = (row / self.chosen, row % self.chosen);
            // Rows of a step are far fewer than 2 ^ 32.
            from[place] = (token * self.inputs + choice % self.inputs) as u32;
            to[place] = row as u32;
        }
        groups.sort_unstable_by_key(|group| Reverse(group.rows));
        let count = groups.partition_point(|group| group.rows > 0);
        // SAFETY: the table begins with a line for the count.
        unsafe { table.cast::<usize>().write(count) };
    }

    /// The groups of a table that [`Self::arrange`] has written. An expert has `expert_bytes`.
    ///
    /// # Safety
    /// As for that function.
    pub unsafe fn groups(&self, table: *mut u8, expert_bytes: usize) -> Groups {
        // SAFETY: the caller guarantees it.
        unsafe {
            let (groups, from, to) = self.parts(table);
            Groups { groups, count: table.cast::<usize>().read(), from, to, expert_bytes }
        }
    }

    /// The parts of a table behind the line with the number of groups.
    unsafe fn parts(&self, table: *mut u8) -> (*mut Group, *mut u32, *mut u32) {
        // SAFETY: the caller guarantees the table's size.
        unsafe {
            let groups = table.add(LINE).cast::<Group>();
            let from = groups.add(self.experts).cast::<u32>();
            (groups, from, from.add(self.rows()))
        }
    }

    /// The expert of a row of the output.
    unsafe fn expert(&self, row: usize) -> usize {
        let (token, choice) = (row / self.chosen, row % self.chosen);
        // SAFETY: the caller guarantees that the number is there.
        let id =
            unsafe { self.ids.byte_add(token * self.strides[1] + choice * self.strides[0]).read() };
        let expert = usize::try_from(id).expect("an expert's number is not below 0");
        assert!(expert < self.experts, "expert {expert} of {}", self.experts);
        expert
    }
}

/// The number at a place of a list; without a list, that of the place.
///
/// # Safety
/// The list, if there is one, has the place.
#[inline(always)]
pub unsafe fn listed(list: *const u32, index: usize) -> usize {
    // SAFETY: the caller guarantees that the list has it.
    if list.is_null() { index } else { unsafe { list.add(index).read() as usize } }
}

/// Bytes of the table of groups for `rows` rows of the output.
pub fn table_bytes(experts: usize, rows: usize) -> usize {
    let groups = LINE + experts * size_of::<Group>();
    (groups + 2 * rows * size_of::<u32>()).next_multiple_of(LINE)
}

impl Groups {
    /// One group: all rows of a single matrix, in their order.
    pub const ONE: Self = Self {
        groups: std::ptr::null(),
        count: 1,
        from: std::ptr::null(),
        to: std::ptr::null(),
        expert_bytes: 0,
    };

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A group; `None` if it has all rows of a single matrix.
    ///
    /// # Safety
    /// The table is alive, and there is such a group.
    pub unsafe fn get(&self, index: usize) -> Option<Members> {
        if self.groups.is_null() {
            return None;
        }
        // SAFETY: the caller guarantees it.
        unsafe {
            let group = *self.groups.add(index);
            let first = group.first as usize;
            Some(Members {
                weights_at: group.expert as usize * self.expert_bytes,
                rows: group.rows as usize,
                from: self.from.add(first),
                to: self.to.add(first),
            })
        }
    }
}

/// The rows of a group.
pub struct Members {
    /// Bytes from the weights of the first expert to those of this one.
    pub weights_at: usize,
    /// Their number.
    pub rows: usize,
    /// The number of each row of activations.
    pub from: *const u32,
    /// The number of each row of the output.
    pub to: *const u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_grouped_by_expert_and_large_groups_come_first() {
        // Those of the module's drawing, with a gap behind each token.
        let ids = [5, 2, -1, 2, 7, -1, 2, 5, -1];
        for inputs in [1, 2] {
            let choices = Choices {
                experts: 8,
                tokens: 3,
                chosen: 2,
                inputs,
                ids: ids.as_ptr(),
                strides: [4, 12],
            };
            let mut table = vec![[0u64; 8]; choices.table_bytes().div_ceil(64)];
            // SAFETY: the table has its size, and the numbers lie in the array.
            let found: Vec<(u32, Vec<(u32, u32)>)> = unsafe {
                choices.arrange(table.as_mut_ptr().cast());
                let groups = choices.groups(table.as_mut_ptr().cast(), 0);
                let group = |index| *groups.groups.add(index);
                let row = |at: u32| (*groups.from.add(at as usize), *groups.to.add(at as usize));
                let rows = |g: Group| (g.first..g.first + g.rows).map(row).collect();
                (0..groups.count()).map(|i| (group(i).expert, rows(group(i)))).collect()
            };
            let from = |row: u32| if inputs == 1 { row / 2 } else { row };
            let rows = |rows: &[u32]| rows.iter().map(|row| (from(*row), *row)).collect();
            assert_eq!(found, [(2, rows(&[1, 2, 4])), (5, rows(&[0, 5])), (7, rows(&[3]))]);
        }
    }
}
