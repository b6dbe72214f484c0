//! The tour is the product at work: with an empty home, without a network, from the built binary.

use crate::world::{World, code, stderr, stdout};

#[test]
fn it_shows_the_product_at_work() {
    let world = World::new();
    let output = world.sabir().args(["tour", "--folder", "scratch"]).output().unwrap();
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(code(&output), 0, "{err}");
    assert_eq!(
        world.read("scratch/greet.sh"),
        "#!/bin/sh\n# Greets the people it is given.\nfor name in \"$@\"; do\n  echo \"Hello, $name!\"\ndone\n"
    );
    assert!(err.contains("refused: read_file is not run"), "{err}");
    assert!(err.contains("error[wrong_type]") && err.contains("^^^^^"), "{err}");
    assert!(err.contains("unknown_argument"), "{err}");
    assert!(err.contains("repaired in execute_command (argument_alias)"), "{err}");
    assert!(err.contains("Hello, Ada!\nHello, Grace!\n"), "{err}");
    assert!(out.contains("for name in"), "{out}");
    assert!(!world.home.path().join(".local").exists(), "the home stays empty");
}
