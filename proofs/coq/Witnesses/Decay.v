(** A witness of Statements/Decay.v: the operator is 0 or the projection on the first unit vector, with equal
    chances. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Decay.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma decay_bounds_gain : ltac:(witness Statements.Decay.decay_bounds_gain).
Proof.
move=> R; take_fair R; exists 2%N; split=> //; exists 2%N; split=> //.
exists (fun=> corner R 1 0), (2%:R^-1 *: corner R 1 1); split.
  by rewrite scaler_eq0 negb_or gt_eqF ?half_gt0 //= corner_neq0.
exists (fun w => (side R w.1 / 2%:R) *: corner R 1 1), 1, 2%N; split=> //; split.
  split=> [|w]; first exact: ler01.
  rewrite -scalerDl -scalemxAl normZ expr1n mul1r (_ : corner R 1 1 *m corner R 1 0 = corner R 1 0);
    last first.
    by rewrite mul_delta_mx.
  rewrite ler_pimull ?norm_ge0 // /side; case: w.1; last by rewrite mulNr mul1r subrr normr0 ler01.
  by rewrite (_ : _ + _ = 1) ?normr1 ?lexx //; field.
move=> i l t; rewrite !fair_some !fairE /= !mxE /side; case: (_ == t) => //.
by field.
Qed.
