//! Rules that the sources and the pages keep. Nothing runs here, so these tests are fast.

mod documents;
mod layering;
#[path = "../support/pages.rs"]
mod pages;
