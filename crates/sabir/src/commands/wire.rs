//! Implements `wire decode` and `wire encode`: decodes a recorded response body, and prints the
//! request that would be sent.

use sabir_call::Event;
use sabir_toolbox::ToolboxError;
use sabir_toolbox::parse::{EventLineWriter, find_dialect};
use sabir_toolbox::wire::{
    DecodeOptions, EncodeOptions, decode_body, detect_response_wire, encode_request, find_wire,
    read_request,
};
use sabir_wire::WireOptions;

use crate::cli::{DecodeArguments, EncodeArguments, OutputFormat, ReportFormat};
use crate::commands::parse::{exit_status, load_tools, read_stdin};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::{ReportOutput, print_exact_report, print_report};

/// Runs `sabir wire decode`.
pub(crate) fn run_decode(arguments: &DecodeArguments) -> Result<ExitStatus, CommandError> {
    let tools = arguments.reading.tools.as_deref();
    let body = read_stdin()?;
    let wire = match &arguments.wire {
        Some(name) => find_wire(name)?,
        None => detect_response_wire(&body).ok_or(ToolboxError::UnknownResponse)?,
    };
    let options = DecodeOptions {
        wire,
        dialects: process_environment::dialects(),
        tools: tools.map(|path| load_tools(Some(path))).transpose()?,
        chunk_bytes: arguments.reading.chunk,
    };
    let decoded = if arguments.output == OutputFormat::Events {
        let mut out = ReportOutput::json();
        let mut lines = EventLineWriter::new(&mut out);
        let decoded = decode_body(&body, &options, &mut lines);
        lines.finish().map_err(ToolboxError::from)?;
        decoded
    } else {
        let decoded = decode_body(&body, &options, &mut |_: Event<'_>| {});
        print_report(&decoded.report(), arguments.output)?;
        decoded
    };
    Ok(match exit_status(&decoded.parsed) {
        ExitStatus::Completed if decoded.is_failed => ExitStatus::Provider,
        exit => exit,
    })
}

/// Runs `sabir wire encode`.
pub(crate) fn run_encode(arguments: &EncodeArguments) -> Result<ExitStatus, CommandError> {
    let wire = find_wire(&arguments.wire)?;
    let input = read_stdin()?;
    let from = arguments.from.as_deref().map(find_wire).transpose()?;
    let request = read_request(&input, from, "standard input")?;
    let prompted = match arguments.protocol.as_deref() {
        None | Some("native") => None,
        Some(name) => Some(find_dialect(
            process_environment::dialects(),
            name,
            "native, ",
        )?),
    };
    let options = EncodeOptions {
        wire,
        model: arguments.model.clone(),
        prompted,
        form: WireOptions {
            streamed: !arguments.whole,
            cached: arguments.cached,
            thought_field: arguments.thought_field.clone(),
            ..WireOptions::default()
        },
    };
    let encoded = encode_request(request, &options)?;
    for note in &encoded.notes {
        print::write_stderr(&format!("note: {note}\n"));
    }
    if arguments.output == ReportFormat::Text {
        print::write_stderr(&encoded.head_text());
    }
    print_exact_report(&encoded, arguments.output)?;
    Ok(ExitStatus::Completed)
}
