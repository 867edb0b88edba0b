(** Witnesses of Statements/Costs.v: layers of width 2. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI Require Import Witness.
From LAI Require Statements.Costs.

Lemma cache_below_two : ltac:(witness Statements.Costs.cache_below_two).
Proof. by exists (fun=> 2). Qed.

Lemma passes_below_two : ltac:(witness Statements.Costs.passes_below_two).
Proof. by exists 2; split=> //; exists (fun=> 2). Qed.

Lemma equal_passes : ltac:(witness Statements.Costs.equal_passes).
Proof. by exists 2. Qed.

Lemma no_order_of_magnitude : ltac:(witness Statements.Costs.no_order_of_magnitude).
Proof. by exists 2; split=> //; exists (fun=> 2); split=> //; exists 2. Qed.
