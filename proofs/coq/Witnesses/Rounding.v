(** A witness of Statements/Rounding.v: two terms, two operations each, every one off by a quarter. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Rounding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma rounding_error : ltac:(witness Statements.Rounding.rounding_error).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists 4%:R^-1, (fun _ _ => 4%:R^-1).
have q0 : 0 <= 4%:R^-1 :> R by rewrite invr_ge0 ler0n.
split; first by split=> // i k; rewrite ger0_norm.
by rewrite ltr_pdivr_mulr ?ltr0n // mul1r ltr_nat.
Qed.
