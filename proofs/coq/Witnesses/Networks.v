(** Witnesses of the definitions in Statements/Networks.v that assume something: two layers, the second one. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI Require Import Witness.
From LAI Require Statements.Networks.

Lemma A3 : ltac:(witness Statements.Networks.A3). Proof. by move=> R; exists 2; split=> //; exists 2. Qed.
Lemma variant : ltac:(witness Statements.Networks.variant). Proof. exact: A3. Qed.
Lemma non_expansive : ltac:(witness Statements.Networks.non_expansive). Proof. exact: A3. Qed.
