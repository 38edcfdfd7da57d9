//! The files that a group of servers adds to a member's folder: states of snapshots, and the node's log.
//!
//! Records count as rows, and entries as transactions. A file's clock counts the records before it.

use lycosa_engine::group::Base;
use lycosa_engine::group::listing::{LogRecord, records};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::{Listing, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{End, FileReader, Step};

use super::{FileReport, State, Verification};

impl Verification<'_> {
    /// Verifies the states and the log, in the order of their names.
    pub(super) fn group(&mut self, listing: &Listing, reports: &mut Vec<FileReport>) {
        // They belong to the group: their UUID is not the instance's.
        self.instance = None;
        let mut reached = None;
        for &signature in &listing.group_states {
            let (mut report, reader) = self.opened(FileKind::GroupState, signature);
            if let Some(mut reader) = reader {
                self.header(&mut report, &reader, signature);
                match Base::read_from(&mut reader, &report.name) {
                    Ok((base, _)) if base.index == signature => {
                        (report.rows, report.transactions) = (1, 1);
                        if !listing.snapshots.contains(&base.signature) {
                            let snapshot = file_name(FileKind::Snapshot, base.signature);
                            report.note(&format_args!(
                                "its snapshot {snapshot} is not there; no start reads it"
                            ));
                        }
                    }
                    Ok((base, _)) => {
                        report.fault(
                            Category::Damaged,
                            &format_args!("it is the state of entry {}", base.index),
                        );
                    }
                    Err(error) => report.fault(Category::Damaged, &error),
                }
            }
            self.counted(&report);
            reports.push(report);
        }
        for &signature in &listing.group_logs {
            let (mut report, reader) = self.opened(FileKind::GroupLog, signature);
            if let Some(mut reader) = reader {
                self.header(&mut report, &reader, signature);
                if let Some(reached) = reached.filter(|&reached| reached != signature) {
                    let text = format!(
                        "the file before it ends after record {reached} and it begins after record {signature}"
                    );
                    report.fault(Category::Missing, &text);
                }
                match log(&mut report, &mut reader) {
                    Ok(End::Marker) => {}
                    Ok(_) if report.state == State::Damaged => {}
                    Ok(End::Open) => report.state = State::Open,
                    Ok(End::Torn(torn)) => {
                        report.state = State::Torn;
                        report.note(&torn);
                    }
                    Err(error) => report.fault(Category::Disk, &error),
                }
                let mut ends = Vclock::new();
                if ends.set(1, signature + report.rows).is_ok() {
                    report.ends = Some(ends);
                }
                // Behind damage the records cannot be counted.
                reached = (report.state != State::Damaged).then_some(signature + report.rows);
            }
            self.counted(&report);
            reports.push(report);
        }
    }

    fn counted(&mut self, report: &FileReport) {
        self.done = (self.done.0 + report.bytes, self.done.1 + report.rows);
        (self.progress)(self.done.0, self.done.1);
    }
}

/// Reads a file of the log to its end, past all damage.
fn log(report: &mut FileReport, reader: &mut FileReader) -> std::io::Result<End> {
    loop {
        match reader.next_block()? {
            Step::Block(block) => {
                let offset = block.offset;
                for record in records(block.rows) {
                    match record {
                        Ok(record) => {
                            let is_first = report.rows == 0;
                            if is_first && !matches!(record, LogRecord::Begin(_)) {
                                report
                                    .fault(Category::Damaged, &"it does not begin with the state of the log");
                            }
                            report.rows += 1;
                            report.transactions += u64::from(matches!(record, LogRecord::Entry { .. }));
                        }
                        Err(error) => {
                            let text =
                                format!("a record of the block at offset {offset} cannot be read: {error}");
                            report.fault(Category::Damaged, &text);
                        }
                    }
                }
            }
            Step::End(end) => return Ok(end),
            Step::Damage(damage) => {
                let text = match reader.skip_damage()? {
                    Some(offset) => format!("{damage}; sound data goes on at offset {offset}"),
                    None => format!("{damage}; nothing sound follows"),
                };
                report.fault(Category::Damaged, &text);
            }
        }
    }
}
