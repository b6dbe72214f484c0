//! Tests the tools on a real folder: their effects, and the exact text that the model reads.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helpers"
)]

mod approvals;
mod commands;
mod definitions;
mod editor;
mod fetch;
mod files;
mod hidden;
mod offer;
mod paths;
mod races;
#[allow(
    unreachable_pub,
    reason = "one file, shared by the tests of several crates"
)]
#[path = "../../../sabir-testkit/src/temp_base.rs"]
mod temp_base;
mod walls;

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::{CallPermit, PreparedCall, ToolOutput, ToolRegistry};
use sabir_policy::Access;
use sabir_tools::{EditTool, Editor, NetworkScope, ToolSettings, builtin_tools};
use sabir_workspace::{Bounds, JobManager, OutputLifetime, Sandbox, SandboxLevel, Workspace};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// A workspace in a fresh folder, beside another fresh folder that is outside, and the tools of one task in it.
struct Place {
    root: TempDir,
    outside: TempDir,
    registry: ToolRegistry,
}

impl Place {
    fn new() -> Self {
        Self::with_settings(EditTool::default(), NetworkScope::Only(Vec::new()))
    }

    /// Creates a place that offers this edit tool.
    fn editing_by(edit_tool: EditTool) -> Self {
        Self::with_settings(edit_tool, NetworkScope::Only(Vec::new()))
    }

    /// Creates a place with this network scope.
    fn reaching(reach: NetworkScope) -> Self {
        Self::with_settings(EditTool::default(), reach)
    }

    fn with_settings(edit_tool: EditTool, reach: NetworkScope) -> Self {
        Self::set_up(
            edit_tool,
            reach,
            Bounds::new(),
            Sandbox::new(SandboxLevel::Off),
        )
    }

    /// Creates a place with paths that are hidden from the model.
    fn bounded(bounds: Bounds) -> Self {
        Self::set_up(
            EditTool::ApplyPatch,
            NetworkScope::Only(Vec::new()),
            bounds,
            Sandbox::new(SandboxLevel::Off),
        )
    }

    /// Creates a place whose commands run in this sandbox.
    fn confined(sandbox: Sandbox) -> Self {
        Self::set_up(
            EditTool::default(),
            NetworkScope::Only(Vec::new()),
            Bounds::new(),
            sandbox,
        )
    }

    fn set_up(edit_tool: EditTool, reach: NetworkScope, bounds: Bounds, sandbox: Sandbox) -> Self {
        Self::with_editor(edit_tool, reach, bounds, sandbox, None)
    }

    fn with_editor(
        edit_tool: EditTool,
        reach: NetworkScope,
        bounds: Bounds,
        sandbox: Sandbox,
        editor: Option<Arc<dyn Editor>>,
    ) -> Self {
        let [root, outside] =
            [(); 2].map(|()| TempDir::new_in(temp_base::find_temp_base()).unwrap());
        let registry = ToolRegistry::new(builtin_tools(ToolSettings {
            workspace: Arc::new(Workspace::open(root.path()).unwrap().with_bounds(bounds)),
            helper: PathBuf::from(env!("CARGO_BIN_EXE_tools-probe")),
            environment: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            edit_tool,
            sandbox,
            jobs: Arc::new(JobManager::new(
                outside.path().join("outputs"),
                OutputLifetime::Persistent,
            )),
            reach,
            editor,
        }))
        .unwrap();
        Self {
            root,
            outside,
            registry,
        }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        files
            .iter()
            .for_each(|(name, content)| place.put(name, content));
        place
    }

    fn inner(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.inner(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.inner(name)).unwrap()
    }

    fn access(&self, tool: &str, arguments: Value) -> Access {
        self.prepare(tool, arguments).access()
    }

    fn prepare(&self, tool: &str, arguments: Value) -> Box<dyn PreparedCall> {
        self.registry.get(tool).unwrap().prepare(&object(arguments))
    }

    /// Runs a tool, and returns what came while it ran as well.
    fn run(&self, tool: &str, arguments: Value) -> (ToolOutput, String) {
        self.run_by(
            &CallPermit::unchecked(sabir_call::CallId::new("1")),
            tool,
            arguments,
        )
    }

    fn run_by(&self, permit: &CallPermit, tool: &str, arguments: Value) -> (ToolOutput, String) {
        run_prepared(self.prepare(tool, arguments), permit)
    }

    #[track_caller]
    fn done(&self, tool: &str, arguments: Value, expected: &str) {
        let (output, _) = self.run(tool, arguments);
        assert_eq!((output.content.as_str(), output.failed), (expected, false));
    }

    #[track_caller]
    fn fails(&self, tool: &str, arguments: Value, expected: &str) {
        let (output, _) = self.run(tool, arguments);
        assert_eq!((output.content.as_str(), output.failed), (expected, true));
    }
}

/// Runs a prepared call, and returns what came while it ran as well.
fn run_prepared(call: Box<dyn PreparedCall>, permit: &CallPermit) -> (ToolOutput, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut streamed = String::new();
    let output = runtime.block_on(async {
        if let Some(refresh) = call.refresh() {
            refresh.await;
        }
        call.run(permit, &mut |piece| streamed.push_str(piece))
            .await
    });
    (output, streamed)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("no object: {other}"),
    }
}
