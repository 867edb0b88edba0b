(** Proofs of Statements/Decay.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Variance Networks Decay.
From LAI Require Import Vectors Variance.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The mean of a quadratic form of g. *)
Lemma trace_moment (R : realFieldType) (W : finType) (P : law R W) n (g : W -> 'cV[R]_n) (Q : 'M_n) :
  \tr (Q *m moment P g) = mean P (fun w => dot (g w) (Q *m g w)).
Proof.
have -> : mean P (fun w => dot (g w) (Q *m g w))
        = mean P (fun w => \sum_i \sum_l Q i l * (g w l 0 * g w i 0)).
  apply: eq_mean => w; apply: eq_bigr => i _; rewrite big_ord1 mxE mulr_sumr.
  by apply: eq_bigr => l _; rewrite mulrCA [g w i 0 * _]mulrC.
rewrite mean_sum; apply: eq_bigr => i _; rewrite mxE mean_sum; apply: eq_bigr => l _.
by rewrite mxE meanZ.
Qed.

Theorem decay_bounds_gain : Statements.Decay.decay_bounds_gain.
Proof.
move=> R W P m n g M D rho k [rho0 A1] free.
have cross : mean P (fun w => dot (M *m g w) (D w *m g w)) = 0.
  rewrite (@eq_mean _ _ _ _ (fun w => \sum_i \sum_l ((M *m g w) i 0 * g w l 0) * D w i l)) => [|w].
    rewrite mean_sum big1 // => i _; rewrite mean_sum big1 // => l _.
    rewrite (mean_given (fun v : 'cV_n => (M *m v) i 0 * v l 0) (free i l)).
    by rewrite (@eq_mean _ _ _ _ (fun=> 0)) ?mean_const // => w; rewrite mulr0.
  apply: eq_bigr => i _; rewrite big_ord1 [X in _ * X]mxE mulr_sumr.
  by apply: eq_bigr => l _; rewrite -mulrA [D w i l * _]mulrC.
rewrite -[moment P g in X in _ <= X]mul1mx !trace_moment -meanZ.
have -> : mean P (fun w => dot (g w) (M^T *m M *m g w))
        = mean P (fun w => 2%:R * dot (M *m g w) (D w *m g w) + dot (M *m g w) (M *m g w)).
  by rewrite mean_lin cross mulr0 add0r; apply: eq_mean => w; rewrite dot_mull mulmxA.
apply: ler_sum => w _; apply: ler_wpmul2l; first exact: prob_ge0.
rewrite mul1mx; have := A1 w; rewrite norm_le ?mulr_ge0 ?exprn_ge0 ?norm_ge0 //.
rewrite exprMn norm_sqr -exprM mulnC; apply: le_trans.
rewrite mulmxDl dotDl !dotDr (dotC (D w *m g w) (M *m g w)).
have algebra (a c d : R) : 0 <= d -> 2%:R * c + a <= a + c + (c + d).
  by move=> d0; rewrite -subr_ge0 (_ : _ - _ = d) //; ring.
exact: algebra (dot_ge0 _).
Qed.
