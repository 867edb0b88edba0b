(** Proofs of Statements/Sketches.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Variance Sketches.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Signs.
Variables (R : realFieldType) (d : nat) (P : law R [finType of {ffun 'I_d -> bool}]).
Hypothesis fair : forall s, prob P s = 1 / 2%:R ^+ d.

(* Turning the sign of i is a bijection that keeps the law. *)
Definition turn i (s : {ffun 'I_d -> bool}) : {ffun 'I_d -> bool} := [ffun k => s k (+) (k == i)].
Lemma turnK i : involutive (turn i).
Proof. by move=> s; apply/ffunP => k; rewrite !ffunE -addbA addbb addbF. Qed.

Lemma mean_signs i k : mean P (fun s => sign R s i * sign R s k) = (i == k)%:R.
Proof.
have [<-|ne] := eqVneq i k.
  rewrite /mean (eq_bigr (prob P)) ?prob_sum // => s _.
  by rewrite /sign -expr2 sqrr_sign mulr1.
have flip : mean P (fun s => sign R s i * sign R s k) = - mean P (fun s => sign R s i * sign R s k).
  rewrite {1}/mean (reindex_inj (inv_inj (turnK i))) -sumrN; apply: eq_bigr => s _.
  rewrite !fair /sign !ffunE eqxx eq_sym (negPf ne) addbF addbT signrN.
  by rewrite mulNr mulrN.
by apply/eqP; rewrite -[_ == _](mulrn_eq0 _ 2) mulr2n {2}flip subrr.
Qed.
End Signs.

Theorem sketch_unbiased : Statements.Sketches.sketch_unbiased.
Proof.
move=> R d w P group g h fair; rewrite /mean.
have expand s : dot (sketch group s g) (sketch group s h)
    = \sum_i \sum_k (group i == group k)%:R * (g i 0 * h k 0) * (sign R s i * sign R s k).
  rewrite /dot (eq_bigr (fun b => \sum_i \sum_k (group i == b)%:R * ((group k == b)%:R
    * ((sign R s i * g i 0) * (sign R s k * h k 0))))) => [|b _]; last first.
    rewrite big_ord1 !mxE mulr_suml big_mkcond; apply: eq_bigr => i _.
    case: eqP => _; last by rewrite big1 // => k _; rewrite mul0r.
    rewrite mulr_sumr big_mkcond; apply: eq_bigr => k _.
    by case: eqP => _; rewrite ?mul1r ?mul0r ?mulr0.
  rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => k _.
  rewrite (bigD1 (group i)) //= eqxx mul1r big1 ?addr0 => [|b /negPf nb]; last by rewrite eq_sym nb mul0r.
  by rewrite eq_sym; ring.
rewrite (eq_bigr _ (fun s _ => congr1 (fun x => prob P s * x) (expand s))).
under eq_bigr do rewrite mulr_sumr.
rewrite exchange_big; apply: eq_bigr => i _; rewrite big_ord1.
under eq_bigr do rewrite mulr_sumr.
rewrite exchange_big (bigD1 i) //= [X in _ + X]big1 ?addr0 => [|k /negPf nk].
  under eq_bigr do rewrite mulrCA.
  by rewrite -mulr_sumr -/(mean _ _) mean_signs // !eqxx mulr1 mul1r.
under eq_bigr do rewrite mulrCA.
by rewrite -mulr_sumr -/(mean _ _) mean_signs // [i == k]eq_sym nk mulr0.
Qed.
